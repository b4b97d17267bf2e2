"""Resumable training from files; prediction and what-if analysis from a finished run."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.training import config as config
    from semicyclic.training import fit as fit
    from semicyclic.training import inspect as inspect
    from semicyclic.training import label_queue as label_queue
    from semicyclic.training import learner as learner
    from semicyclic.training import load_all as load_all
    from semicyclic.training import open_model as open_model
    from semicyclic.training import predict as predict
    from semicyclic.training import progress_log as progress_log
    from semicyclic.training import read_ahead as read_ahead
    from semicyclic.training import reader as reader
    from semicyclic.training import results as results
    from semicyclic.training import run_dir as run_dir
    from semicyclic.training import train_files as train_files
    from semicyclic.training import what_if as what_if
else:
    __getattr__ = lazy_submodules(__name__)

"""Files that survive a crash: atomic writes, sealed files, model files, checkpoints."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.store import atomic as atomic
    from semicyclic.store import checkpoint as checkpoint
    from semicyclic.store import json_codec as json_codec
    from semicyclic.store import model_file as model_file
    from semicyclic.store import sealed as sealed
else:
    __getattr__ = lazy_submodules(__name__)

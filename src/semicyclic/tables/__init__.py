"""Readers that convert files and data frames to clean, typed, sparse rows. Only this package uses Arrow."""

from typing import TYPE_CHECKING

from semicyclic.lazy import lazy_submodules

if TYPE_CHECKING:
    from semicyclic.tables import arrow as arrow
    from semicyclic.tables import byte_stream as byte_stream
    from semicyclic.tables import cleaning as cleaning
    from semicyclic.tables import columns as columns
    from semicyclic.tables import encoding as encoding
    from semicyclic.tables import features as features
    from semicyclic.tables import formats as formats
    from semicyclic.tables import frames as frames
    from semicyclic.tables import kernels as kernels
    from semicyclic.tables import labels as labels
    from semicyclic.tables import load as load
    from semicyclic.tables import one_row as one_row
    from semicyclic.tables import sources as sources
    from semicyclic.tables import text_formats as text_formats
    from semicyclic.tables import timestamps as timestamps
    from semicyclic.tables import vocabulary as vocabulary
    from semicyclic.tables import watermark as watermark
    from semicyclic.tables import writers as writers
else:
    __getattr__ = lazy_submodules(__name__)

"""Type aliases used throughout the package."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

Array = npt.NDArray[Any]
# The contents of a `results.json`.
Results = Mapping[str, Any]
# Progress of a long call: the share done, from 0 to 1, and the current stage.
ReportProgress = Callable[[float, str], None]

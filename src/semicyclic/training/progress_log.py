"""`ProgressLog`: messages of `fit` about its progress, every few seconds, through `logging`."""

import logging
import time
from collections.abc import Callable

logger = logging.getLogger("semicyclic.training")
# Seconds between two messages.
LOG_SECONDS = 2.0


class ProgressLog:
    """Logs the progress of one `fit`."""

    def __init__(self) -> None:
        self.started = self.reported = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def rows(self, rows: int, loss: Callable[[], float], total: int | None = None) -> None:
        """Log how many rows have been trained on, if the last message is some seconds ago."""
        if time.monotonic() > self.reported + LOG_SECONDS:
            self.reported = time.monotonic()
            of = "" if total is None else f" of {total:,}"
            logger.info("fit: %s%s rows, loss %.4f, %.0f s", f"{rows:,}", of, loss(), self.seconds)

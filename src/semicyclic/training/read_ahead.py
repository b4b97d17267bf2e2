"""Read-ahead: produce the items of an iterator in a second thread."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Queue size in items: enough to absorb the jitter of both threads.
DEPTH = 2


class _End:
    """End of the items, with the error that ended them, if any."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterable[Item], *, depth: int = DEPTH, patience: float = 0.5) -> Iterator[Item | None]:
    """Yield the same items, produced in a second thread up to `depth` items ahead.

    Yield None if no item arrives within `patience` seconds, so that the caller can do deferred work.
    """
    ready: queue.Queue[Item | _End] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_End(None))
        except BaseException as error:  # re-raised in the thread that uses the items
            put(_End(error))

    thread = threading.Thread(target=produce, name="reading", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = ready.get(timeout=patience)
            except queue.Empty:
                yield None
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()

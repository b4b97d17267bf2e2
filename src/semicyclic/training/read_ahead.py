"""Read-ahead: an iterator that is consumed in a second thread."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# How many items may wait: enough that neither waits for the other's jitter.
DEPTH = 2


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def read_ahead(items: Iterable[Item], *, depth: int = DEPTH, patience: float = 0.5) -> Iterator[Item | None]:
    """The same items, made in a thread of their own, a few ahead of where they are used.

    None where for `patience` seconds nothing has come: time to do what can wait.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item):
                    return
            put(_End(None))
        except BaseException as error:  # whatever it is, it belongs to the one who uses the items
            put(_End(error))

    thread = threading.Thread(target=work, name="reading", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = waiting.get(timeout=patience)
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

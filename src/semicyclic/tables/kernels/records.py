"""Record boundaries in CSV and JSON lines."""

from typing import Any

from semicyclic.jit import jit

QUOTE, NEWLINE, RETURN = 34, 10, 13


@jit
def record_end(data: Any, start: Any, delimiter: Any, quoted: Any) -> Any:
    """Where the last whole record of data[start:] ends; `start` if none does.

    A quote opens only at the start of a cell; inside, two of them stand for one.
    """
    end = start
    fresh = True
    inside = False
    p = start
    while p < len(data):
        byte = data[p]
        if inside:
            if byte == QUOTE:
                if p + 1 < len(data) and data[p + 1] == QUOTE:
                    p += 1
                else:
                    inside = False
        elif byte == NEWLINE:
            end = p + 1
            fresh = True
        elif byte == QUOTE and fresh and quoted:
            inside = True
            fresh = False
        else:
            fresh = byte in (delimiter, RETURN)
        p += 1
    return end

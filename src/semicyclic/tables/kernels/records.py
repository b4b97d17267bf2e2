"""Record boundaries in CSV and JSON lines."""

from typing import Any

from semicyclic.jit import jit

QUOTE, NEWLINE, RETURN = 34, 10, 13


@jit
def record_end(data: Any, start: Any, delimiter: Any, quoted: Any) -> Any:
    """Return the end of the last complete record of data[start:], or `start` if there is none.

    A quote opens only at the start of a cell; inside quotes, a doubled quote is a literal one.
    """
    end = start
    cell_start = True
    in_quotes = False
    p = start
    while p < len(data):
        byte = data[p]
        if in_quotes:
            if byte == QUOTE:
                if p + 1 < len(data) and data[p + 1] == QUOTE:
                    p += 1
                else:
                    in_quotes = False
        elif byte == NEWLINE:
            end = p + 1
            cell_start = True
        elif byte == QUOTE and cell_start and quoted:
            in_quotes = True
            cell_start = False
        else:
            cell_start = byte in (delimiter, RETURN)
        p += 1
    return end

"""The command line app: registers the commands and turns exceptions into messages and exit codes."""

import os
import sys

from cyclopts import App

from semicyclic.cli.backtest import backtest
from semicyclic.cli.demo import demo
from semicyclic.cli.diagnose import diagnose
from semicyclic.cli.federate import federate
from semicyclic.cli.inspect import inspect
from semicyclic.cli.predict import predict
from semicyclic.cli.reproduce import reproduce
from semicyclic.cli.theory import theory
from semicyclic.cli.train import train
from semicyclic.cli.what_if import what_if
from semicyclic.version import __version__

app = App(
    name="semicyclic",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help="Learn from data that arrives in a daily or weekly rhythm: one model for every block.",
)
for command in (demo, diagnose, backtest, train, predict, inspect, what_if, federate, reproduce, theory):
    app.command(command)


def main(words: list[str] | None = None) -> None:
    """Run a command; say what went wrong in one sentence and exit with 1."""
    try:
        app(sys.argv[1:] if words is None else words)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        print(f"semicyclic: {f'{error.filename}: {error.strerror}' if named else error}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("semicyclic: there is not enough memory for this: choose fewer blocks or rows", file=sys.stderr)
        sys.exit(1)
    except (ValueError, ArithmeticError, ImportError) as error:
        print(f"semicyclic: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as stop:
        print(f"semicyclic: {str(stop) or 'stopped'}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

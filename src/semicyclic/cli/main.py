"""Command line app: registers the commands and turns exceptions into messages and exit codes."""

import os
import sys

from cyclopts import App

from semicyclic.cli.backtest import backtest
from semicyclic.cli.demo import demo
from semicyclic.cli.diagnose import diagnose
from semicyclic.cli.federate import federate
from semicyclic.cli.inspect import inspect
from semicyclic.cli.messages import name_options, option_names
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
    help="Train models on data with a daily or weekly rhythm: one model per block.",
)
for each in (demo, diagnose, backtest, train, predict, inspect, what_if, federate, reproduce, theory):
    app.command(each)
COMMANDS = [name for name in app if not name.startswith("-")]


def main(words: list[str] | None = None) -> None:
    """Run a command; on an error print one sentence and exit with code 1 (130 if interrupted).

    words: command line arguments, by default those of the process.
    """
    words = sys.argv[1:] if words is None else words
    try:
        app(words)
    except BrokenPipeError:
        # The reader of standard output has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        names_file = error.filename is not None and error.strerror is not None
        message = f"{error.filename}: {error.strerror}" if names_file else error
        print(f"semicyclic: {message}", file=sys.stderr)
        sys.exit(1)
    except MemoryError:
        print("semicyclic: out of memory: use fewer blocks or rows", file=sys.stderr)
        sys.exit(1)
    except (ValueError, ArithmeticError, ImportError) as error:
        options = option_names(app, words)
        known = {name for command in COMMANDS for name in option_names(app, [command])}
        print(f"semicyclic: {name_options(str(error), options, known - options.keys())}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        print(f"semicyclic: {str(interrupt) or 'stopped'}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()

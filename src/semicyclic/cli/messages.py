"""Translation of argument names in messages, such as `late='keep'`, to command line options: `--late keep`.

Everything below the command line names arguments, because it is also called from Python.
"""

import ast
import re
import shlex
from collections.abc import Mapping, Sequence

from cyclopts import App

# An argument, and its value if it has one: a quoted string, a list of these, or a number or word.
STRING = r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"'
ARGUMENT = re.compile(rf"(?<![^\s(])([A-Za-z]\w*)=({STRING}|\[(?:{STRING}|[^\]'\"])*\]|[\w.+%-]*\w)?")


def option_names(app: App, words: Sequence[str]) -> dict[str, str]:
    """Return the options of the command that `words` call, by argument name."""
    command = app.parse_commands(words)[1][-1]
    arguments = command.assemble_argument_collection()
    return {
        argument.field_info.name: name
        for argument in arguments
        for name in argument.names
        if name.startswith("--")
    }


def name_options(text: str, options: Mapping[str, str]) -> str:
    """Replace the arguments in a message by options: `bins=0: too few` becomes `--bins 0: too few`.

    options: by argument name. Other names stay as they are.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in options:
            return match[0]
        if value is None or value == "True":
            return options[name]
        if value[0] in "'\"[":
            parsed = ast.literal_eval(value)
            values = parsed if isinstance(parsed, list) else [parsed]
            value = " ".join(shlex.quote(str(each)) for each in values)
        return f"{options[name]} {value}".rstrip()

    return ARGUMENT.sub(option, text)

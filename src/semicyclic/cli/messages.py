"""Translation of argument names in messages, such as `late='keep'`, to command line options: `--late keep`.

Everything below the command line names arguments, because it is also called from Python. A remedy in the form
`(or category=['x'])` is left out if the running command has no such option.
"""

import ast
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from cyclopts import App

STRING = r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"'
VALUE = rf"{STRING}|\[(?:{STRING}|[^\]'\"])*\]|[\w.+%-]*\w"
# Quoted text, such as a cell of the data; it may be cut off with dots. It is never translated.
QUOTED = r"""(?<![\w=\[])(?:'(?:[^'\\]|\\.)*?(?:'(?!\w)|\.\.\.)|"(?:[^"\\]|\\.)*?(?:"(?!\w)|\.\.\.))"""
# An argument, and its value if it has one: a quoted string, a list of these, or a number or word.
ARGUMENT = re.compile(rf"{QUOTED}|(?<![^\s(])([A-Za-z]\w*)=({VALUE})?")
REMEDY = re.compile(rf" \(or ([A-Za-z]\w*)=(?:{VALUE})?\)")


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


def name_options(text: str, options: Mapping[str, str], absent: Collection[str] = ()) -> str:
    """Replace the arguments in a message by options: `bins=0: too few` becomes `--bins 0: too few`.

    options: by argument name. Other names stay as they are.
    absent: names of options that only other commands have; remedies that need one are left out.
    """

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in options:
            return match[0]
        if value is None or value == "True":
            return options[name]
        if value[0] in "'\"[":
            try:
                parsed = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                return match[0]
            values = parsed if isinstance(parsed, list) else [parsed]
            value = " ".join(shlex.quote(str(each)) for each in values)
        return f"{options[name]} {value}".rstrip()

    text = REMEDY.sub(lambda match: "" if match[1] in absent else match[0], text)
    return ARGUMENT.sub(option, text)

"""Arguments in messages become options of the command that runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semicyclic.cli.main import app
from semicyclic.cli.messages import name_options, option_names

OPTIONS = {"late": "--late", "lateness": "--lateness", "when_format": "--when-format", "resume": "--resume",
           "classes": "--classes", "bins": "--bins", "out": "--out"}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("bins=0: must be from 1 to 1000", "--bins 0: must be from 1 to 1000"),
        ("bins=-1.5e-3, or more", "--bins -1.5e-3, or more"),
        ("give lateness='2h' or more, or late='keep'", "give --lateness 2h or more, or --late keep"),
        ("a shorter lateness= or more", "a shorter --lateness or more"),
        ("with resume=True and (late='drop')", "with --resume and (--late drop)"),
        ("try when_format='%d.%m.%Y %H:%M'", "try --when-format '%d.%m.%Y %H:%M'"),
        ("classes=['a b', \"it's\"]: give two", "--classes 'a b' 'it'\"'\"'s': give two"),
        ("classes=[]: give two", "--classes: give two"),
        ("out='a\\\\b': is a file", "--out 'a\\b': is a file"),
        ("rate=0.5 and total=9 are no options", "rate=0.5 and total=9 are no options"),
        ("data/late=1/x.csv: no such file", "data/late=1/x.csv: no such file"),
        # Quoted cells of the data stay as they are, also if they are cut off.
        (
            "column 'v': 'ping late=3 bins=[x]' is not a number",
            "column 'v': 'ping late=3 bins=[x]' is not a number",
        ),
        ("'a long cell late=3 an...', give late='keep'", "'a long cell late=3 an...', give --late keep"),
        ("the column's rows (or late='keep')", "the column's rows (or --late keep)"),
        ("classes=[abc] is no list", "classes=[abc] is no list"),
    ],
)
def test_arguments_become_options(message: str, shown: str) -> None:
    assert name_options(message, OPTIONS) == shown


def test_remedies_of_other_commands_are_left_out() -> None:
    message = "row 5: not a number (or category=['v']) (or late='keep')"
    assert name_options(message, OPTIONS, {"category"}) == "row 5: not a number (or --late keep)"
    assert name_options(message, OPTIONS) == "row 5: not a number (or category=['v']) (or --late keep)"


@given(st.text() | st.from_regex(r"(classes|late|out)=[\[\]'\"a-z\\\\ ]{0,8}"))
def test_any_text_can_be_shown(text: str) -> None:
    assert name_options(text, {}) == text
    name_options(text, OPTIONS)
    name_options(f"late={text!r}: no", OPTIONS)


def test_every_command_translates_its_own_options() -> None:
    assert option_names(app, ["reproduce"])["as_"] == "--as"
    assert option_names(app, ["backtest", "x.csv"])["on_error"] == "--on-error"
    assert "blocks" not in option_names(app, ["train", "x.csv"])
    assert option_names(app, ["what-if"])["blocks"] == "--blocks"

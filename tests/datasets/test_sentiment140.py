"""Reading Sentiment140's file: exact against Python's csv and re, and refused row by row."""

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semicyclic.datasets import sentiment140, synthetic_tweets
from semicyclic.datasets.sentiment140 import Tweets, read, read_file
from tests.datasets.tweet_csv import csv_bytes

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "sentiment140-sample.csv"
needs_sample = pytest.mark.skipif(not SAMPLE.exists(), reason="needs ../shared/data/sentiment140-sample.csv")
WHEN = "Mon Apr 06 22:19:45 PDT 2009"


def naive(data: bytes, vocabulary: int = 1024) -> Tweets:
    """The definition, with csv and re (docs/math.md#sentiment140)."""
    rows, total = [], Counter[str]()
    for target, _, when, _, _, text in csv.reader(io.StringIO(data.decode("latin-1"), newline="")):
        text = text.replace("http://", "URI ").replace("https://", "URI ")
        text = re.sub(r"(.)\1{2,}", r"\1\1", text, flags=re.DOTALL)
        tokens = re.findall(r"[\w']+|[.,!?;]", text)
        total.update(tokens)
        hour, minute, second = map(int, when[11:19].split(":"))
        rows.append((target == "4", 3600 * hour + 60 * minute + second, tokens))
    chosen = [word for word, _ in total.most_common(vocabulary)]
    number = {word: k for k, word in enumerate(chosen)}
    bags = [Counter(number[word] for word in tokens if word in number) for _, _, tokens in rows]
    return Tweets(
        np.r_[0, np.cumsum([len(bag) for bag in bags])],
        np.array([word for bag in bags for word in bag]),
        np.array([min(count, 4) for bag in bags for count in bag.values()]),
        np.array([row[0] for row in rows]),
        np.array([row[1] for row in rows]),
        tuple(chosen),
    )


def assert_same(found: Tweets, expected: Tweets) -> None:
    assert found.vocabulary == expected.vocabulary
    for name in ("start", "words", "counts", "positive", "second"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def written(rows: list[list[str]], **how: Any) -> np.ndarray[Any, Any]:
    text = io.StringIO(newline="")
    csv.writer(text, **{"quoting": csv.QUOTE_ALL, **how}).writerows(rows)
    return np.frombuffer(text.getvalue().encode("latin-1"), np.uint8)


def row(target: str = "0", when: str = WHEN, text: str = "hello") -> list[str]:
    return [target, "1", when, "NO_QUERY", "someone", text]


TWO = [row("0"), row("4")]


@needs_sample
def test_the_real_sample_is_read_as_python_reads_it() -> None:
    assert_same(read_file(SAMPLE), naive(SAMPLE.read_bytes()))


latin = st.text(st.characters(min_codepoint=0, max_codepoint=255), max_size=60)
snippets = st.lists(
    st.sampled_from(
        ['"', '""', "http://", "https://", "http:/", "hhttp://x", "UU", "aaa", "...", "!!!!", "\n", ","]
    )
    | st.sampled_from(["it's", "é", "ª²³", "ÿþ", " ", "   ", "word", "a-rather-long-word", "x" * 30])
    | latin,
    max_size=12,
).map("".join)


@given(
    st.lists(st.tuples(st.sampled_from("04"), snippets), min_size=1, max_size=8),
    st.integers(1, 40),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_as_python_reads_it_however_it_is_cut(
    texts: list[tuple[str, str]], vocabulary: int, data: st.DataObject
) -> None:
    rows = [row(target, text=text) for target, text in texts] + TWO
    # Python's writer leaves a lone carriage return unquoted, which its reader takes for a line's end.
    bare = any("\r" in text for _, text in texts)
    quoting = csv.QUOTE_ALL if bare else data.draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    ending = data.draw(st.sampled_from(["\n", "\r\n"]))
    whole = written(rows, quoting=quoting, lineterminator=ending)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    found = read(np.split(whole, cuts), vocabulary=vocabulary)
    assert_same(found, naive(whole.tobytes(), vocabulary))


def test_more_words_than_a_table_holds_are_all_found() -> None:
    """The table of words starts with room for 65,536: here are 150,000, long and short."""
    words = [f"{'w' if k % 2 else 'longerword'}{k}" for k in range(150_000)]
    rows = [row("04"[k % 2], text=" ".join([*words[k : k + 100], "all"])) for k in range(0, len(words), 100)]
    rows[1][0] = "4"
    whole = written(rows)
    assert_same(read([whole]), naive(whole.tobytes()))


def test_long_words_with_the_same_key_stay_apart() -> None:
    """Beyond eight letters a key is a hash: here b ^ c = d ^ e makes two of them equal."""
    rows = [row("0", text="xxaaxxabc xxaaxxade"), row("4", text="xxaaxxade xxaaxxade xxaaxxabc!")]
    whole = written(rows)
    found = read([whole])
    assert found.vocabulary == ("xxaaxxade", "xxaaxxabc", "!")
    assert_same(found, naive(whole.tobytes()))


@pytest.mark.parametrize(
    "text", ['"one"two "three"', '"htt"p://x', '""http://y', '"a ""q"" aa"aa', '"" aaa', 'a"b"c']
)
def test_text_after_a_closing_quote_belongs_to_the_field_as_in_csv(text: str) -> None:
    line = b'"0","1","' + WHEN.encode() + b'","N","u",' + text.encode() + b"\n"
    whole = np.frombuffer(line + written(TWO).tobytes(), np.uint8)
    assert_same(read([whole]), naive(whole.tobytes()))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'"0"123,"1","' + WHEN.encode() + b'","N","u","x"\n', "row 1 has the unknown label"),
        (b'"0","1","' + WHEN.encode() + b'"junk,"N","u","x"\n', "row 1 has the date"),
    ],
)
def test_a_label_or_date_with_something_after_its_quotes_is_refused(line: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read([np.frombuffer(line, np.uint8)])


def test_the_longest_text_that_is_read_is_read_exactly() -> None:
    whole = written([row("0", text="ab " * 21_843 + "zz"), row("4")])
    assert_same(read([whole]), naive(whole.tobytes()))


def test_the_last_row_may_lack_its_line_end_and_blank_lines_do_not_count() -> None:
    whole = written(TWO).tobytes()
    ends = np.frombuffer(b"\n\n" + whole.rstrip(b"\r\n"), np.uint8)
    assert len(read([ends])) == 2


REFUSED = {
    "columns": ([*TWO, ["0", "1", WHEN, "x", "y"]], "row 3 has 5 column(s): there must be six"),
    "more columns": ([*TWO, [*row(), "more"]], "row 3 has 7 column(s)"),
    "label": ([row("0"), row("2")], 'row 2 has the unknown label "2": the target must be 0 (negative) or 4'),
    "no label": ([row("0"), row("")], 'row 2 has the unknown label ""'),
    "header": (
        [["target", "id", "date", "flag", "user", "text"]],
        'row 1 has the unknown label "target": the target must be 0 (negative) or 4 (positive) (a header?',
    ),
    "one class": (
        [row("4"), row("4")],
        "all rows, from row 1 to row 2, have the target 4: both classes are needed",
    ),
    "empty": ([], "there are no rows: the file is empty"),
    "hour": ([*TWO, row(when="Mon Apr 06 24:19:45 PDT 2009")], 'row 3 has the date "Mon Apr 06 24:19:45'),
    "day": ([row(when="Mon Apr 31 22:19:45 PDT 2009")], "row 1 has the date"),
    "leap": ([row(when="Sun Feb 29 22:19:45 PST 2009")], "row 1 has the date"),
    "zone": ([row(when="Mon Apr 06 22:19:45 UTC 2009")], 'must be like "Mon Apr 06 22:19:45 PDT 2009"'),
    "month": ([row(when="Mon Foo 06 22:19:45 PDT 2009")], "row 1 has the date"),
    "weekday": ([row(when="Xyz Apr 06 22:19:45 PDT 2009")], "row 1 has the date"),
    "ISO date": ([row(when="2009-04-06T22:19:45")], 'row 1 has the date "2009-04-06T22:19:45"'),
    "letters": ([row(when="Mon Apr 06 2a:19:45 PDT 2009")], "row 1 has the date"),
    "year": ([row(when="Mon Apr 06 22:19:45 PDT 20xx")], "row 1 has the date"),
    "half a year": ([row(when="Mon Apr 06 22:19:45 PDT xx09")], "row 1 has the date"),
    "year 0": ([row(when="Mon Apr 06 22:19:45 PDT 0000")], "row 1 has the date"),
    "long text": ([row(text="x" * 70_000)], "row 1 has a text of 70,000 bytes: at most 65,531 can be read"),
    "label of two lines": ([row("0\n1")], 'row 1 has the unknown label "0\\n1": the target'),
    "colons": ([row(when="Mon Apr 06 22-19-45 PDT 2009")], "row 1 has the date"),
}


@pytest.mark.parametrize(("rows", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_row_that_is_wrong_is_named(rows: list[list[str]], sentence: str) -> None:
    whole = written(rows)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(np.split(whole, [len(whole) // 2]))


def test_a_quote_that_is_never_closed_is_named() -> None:
    whole = written(TWO).tobytes() + b'"0","1","' + WHEN.encode() + b'","N","u","open'
    with pytest.raises(ValueError, match="row 3 has a quote that is not closed"):
        read([np.frombuffer(whole, np.uint8)])


def test_a_leap_day_of_a_leap_year_is_a_date() -> None:
    assert len(read([written([row(when="Fri Feb 29 00:00:00 PST 2008"), row("4")])])) == 2


def test_a_vocabulary_has_a_size() -> None:
    for size in (0, 2**16 + 1):
        with pytest.raises(ValueError, match=f"a vocabulary of {size} words"):
            read([written(TWO)], vocabulary=size)


# ------------------------------------------------------------------------- the stand-in


def test_the_stand_in_is_like_the_original() -> None:
    made, again = (synthetic_tweets.make(3000, vocabulary=200) for _ in range(2))
    assert_same(made, again)
    assert made.positive.tolist() == [False] * 1500 + [True] * 1500
    assert len(set(made.vocabulary)) == 200
    # In order of time: the second of the day begins anew once a day.
    assert (np.diff(made.second[:1500]) < 0).sum() == synthetic_tweets.SPAN_DAYS - 1
    shares: list[float] = []
    synthetic_tweets.make(3000, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with pytest.raises(ValueError, match="rows=7: give an even number"):
        synthetic_tweets.make(7)


def test_the_stand_in_as_a_file_is_read_as_the_same_tweets() -> None:
    made = synthetic_tweets.make(3000, vocabulary=200)
    whole = csv_bytes(made)
    read_back = read([np.frombuffer(whole, np.uint8)])
    assert_same(read_back, naive(whole))
    assert read_back.second.tolist() == made.second.tolist()
    assert np.diff(read_back.start).tolist() == np.diff(made.start).tolist()


@pytest.fixture(scope="module")
def large() -> Tweets:
    return synthetic_tweets.make(400_000, vocabulary=300)


def test_the_labels_of_the_stand_in_follow_the_clock_as_stated(large: Tweets) -> None:
    hour = large.second // 3600
    for h in range(24):
        own = large.positive[hour == h]
        stated = 0.5 + 0.07 * np.cos(2 * np.pi * (h + 0.5 - 1) / 24)
        assert abs(own.mean() - stated) < 4.5 * 0.5 / np.sqrt(len(own)) + 0.002
    assert large.positive.mean() == 0.5
    assert np.bincount(hour, minlength=24).argmax() in (21, 22)


def test_the_words_of_the_stand_in_have_the_stated_log_odds(large: Tweets) -> None:
    """Of frequent words: how much more often under a positive label, by quarter of the day."""
    rng = np.random.default_rng(synthetic_tweets.SEED)
    words = synthetic_tweets._words(rng)
    tilt = rng.normal(0, synthetic_tweets.TILT, synthetic_tweets.WORDS)
    hourly = rng.normal(0, synthetic_tweets.HOURLY, synthetic_tweets.WORDS) * (
        rng.random(synthetic_tweets.WORDS) < 0.5
    )
    peak = rng.uniform(0, 24, synthetic_tweets.WORDS)
    assert len(words) == synthetic_tweets.WORDS
    row_of = np.repeat(np.arange(len(large)), np.diff(large.start))
    hour = large.second[row_of] // 3600
    worst = []
    for word in words[5:25]:
        j, column = words.index(word), large.vocabulary.index(word)
        for low in (0, 6, 12, 18):
            here = (hour >= low) & (hour < low + 6)
            own = large.positive[row_of[here & (large.words == column)]]
            odds = np.log(
                own.sum()
                / (~own).sum()
                * (~large.positive[row_of[here]]).sum()
                / large.positive[row_of[here]].sum()
            )
            meaning = tilt[j] + np.mean(
                [hourly[j] * np.cos(2 * np.pi * (h - peak[j]) / 24) for h in range(low, low + 6)]
            )
            # Neutral rows, three in twenty, draw both odds towards one; means, not exact.
            worst.append((odds, meaning))
    seen, stated = np.array(worst).T
    assert np.corrcoef(seen, stated)[0, 1] > 0.97
    assert 0.7 < np.polyfit(stated, seen, 1)[0] < 1.0


def test_the_numbers_of_the_stand_in_are_those_of_its_docstring() -> None:
    said = re.sub(r"\s+", " ", synthetic_tweets.__doc__ or "")
    assert f"t_j is normal with standard deviation {synthetic_tweets.TILT:g};".replace("0.", ".") in said
    assert "for the others, h_j uniform" in said
    assert (
        f"normal with standard deviation {synthetic_tweets.HOURLY:g} for the others".replace("0.", ".")
        in said
    )
    assert f"There are {synthetic_tweets.WORDS:,}" in said
    assert f"1 + Poisson({synthetic_tweets.MEAN_LENGTH}) words" in said
    assert (synthetic_tweets.NEUTRAL, "In three rows of twenty" in said) == (3 / 20, True)
    assert (synthetic_tweets.LINKED, "One row in twenty-five ends in a link" in said) == (1 / 25, True)
    assert (synthetic_tweets.DRAWN_OUT, "one word in fifty is drawn out" in said) == (1 / 50, True)


def test_the_noise_of_the_stand_in_is_as_frequent_as_stated(large: Tweets) -> None:
    rows_with_link = np.bincount(large.words, minlength=300)[large.vocabulary.index("http")]
    assert abs(rows_with_link / len(large) - 1 / 25) < 0.002


def test_every_part_is_read_while_the_next_is_made() -> None:
    """The first word of progress comes before the last part was asked for."""
    whole = np.array_split(np.frombuffer(csv_bytes(synthetic_tweets.make(20_000)), np.uint8), 4)
    reported: list[int] = []
    asked: list[int] = []

    def parts() -> Any:
        for part in whole:
            asked.append(len(reported))
            yield part

    sentiment140.read(parts(), progress=reported.append)
    assert asked[-1] > 0
    assert reported[-1] == sum(len(part) for part in whole)

"""Which names are refused, and that different names never share a folder."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.core.names import LEVELS_MAX, SEGMENT_BYTES_MAX, check_levels, check_name, path_segment
from headgate.errors import BadInput

REFUSED = r"""
empty                     |
dot                       | .
dot dot                   | ..
slash                     | a/b
backslash                 | a\\b
wildcard                  | a*
question mark             | a?
single quote              | o'brien
double quote              | say "x"
backtick                  | a`b
percent                   | 100%
escaped unit separator    | a%1Fb
NUL                       | a\x00b
unit separator            | a\x1fb
newline                   | a\nb
delete                    | a\x7fb
C1                        | a\x85b
line separator            | a\u2028b
paragraph separator       | a\u2029b
lone surrogate            | a\ud800b
right to left override    | a\u202eb
zero width space          | a\u200bb
zero width joiner         | a\u200db
byte order mark           | \ufeffa
soft hyphen               | a\xadb
language tag              | a\U000e0041b
noncharacter              | a\uffffb
noncharacter of a block   | a\ufdd0b
noncharacter, other plane | a\U0001fffeb
decomposed                | e\u0301
leading space             | \x20a
trailing space            | a\x20
trailing no-break space   | a\xa0
only a space              | \x20
"""
ACCEPTED = [
    "a",
    "A-b_c",
    "a.b",
    ".a",
    "a.",
    "...",
    "two words",
    "été",
    "東京",
    "😀",
    "_",
    "-",
    "0",
    "a:b",
    "<script>",
]


def rows() -> list[tuple[str, str]]:
    cells = [line.partition("|") for line in REFUSED.strip().splitlines()]
    return [
        (name.strip(), text.strip(" ").encode("ascii").decode("unicode_escape")) for name, _, text in cells
    ]


@pytest.mark.parametrize(("name", "text"), rows(), ids=[name for name, _ in rows()])
def test_a_dangerous_name_is_refused_and_the_field_named(name: str, text: str) -> None:
    with pytest.raises(BadInput, match="field=table name=") as refused:
        check_name(text, field="table")
    assert refused.value.field == "table"
    refused.value.message.encode()
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("name", ACCEPTED)
def test_an_ordinary_name_is_taken_as_sent(name: str) -> None:
    assert check_name(name, field="table") == name


def test_the_length_limit_counts_bytes() -> None:
    assert check_name("é" * 127 + "x", field="table")
    for over in ("é" * 128, "x" * 256, "x" * 100_000):
        with pytest.raises(BadInput) as refused:
            check_name(over, field="table")
        assert len(refused.value.message) < 1_000


def test_the_levels_of_a_namespace_are_each_checked_and_bounded() -> None:
    assert check_levels(["a", "b.c"], field="namespace") == ("a", "b.c")
    assert len(check_levels(["a"] * LEVELS_MAX, field="namespace")) == LEVELS_MAX
    for bad in ([], ["a"] * (LEVELS_MAX + 1), [""], ["a", "b\x1fc"], ["a/b"]):
        with pytest.raises(BadInput):
            check_levels(bad, field="namespace")
    with pytest.raises(BadInput) as refused:
        check_levels(["a", ".."], field="namespace")
    assert refused.value.field == "namespace[1]"


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("orders", "orders"),
        ("Orders_2024-v1.5", "Orders_2024-v1.5"),
        (".hidden", "_u002ehidden"),
        ("two words", "two_u0020words"),
        ("é", "_u00e9"),
        ("_u00e9", "_u005fu00e9"),
        ("😀", "_ud83d_ude00"),
        ("a:b", "a_u003ab"),
    ],
)
def test_a_name_becomes_a_plain_folder_name(name: str, segment: str) -> None:
    assert path_segment(name) == segment


NAMES = st.text(alphabet=st.sampled_from("_u0e95fdA.- é😀:"), min_size=1, max_size=9)


@given(NAMES, NAMES)
@example("é", "_u00e9")
@example("_", "_u005f")
def test_different_names_never_share_a_folder(one: str, other: str) -> None:
    assert (path_segment(one) == path_segment(other)) == (one == other)


@given(st.text(min_size=1, max_size=255))
def test_every_accepted_name_gives_a_safe_short_folder_name(name: str) -> None:
    try:
        check_name(name, field="table")
    except BadInput:
        return
    segment = path_segment(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", segment)
    assert len(segment) <= SEGMENT_BYTES_MAX


def test_long_names_that_differ_at_the_end_keep_different_folders() -> None:
    names = ["é" * 126 + end for end in ("a", "b")] + ["x" * 199 + "y", "x" * 199 + "z", "x" * 199, "x" * 200]
    assert len({path_segment(name) for name in names}) == len(names)
    assert path_segment(path_segment(names[0])) != path_segment(names[0])

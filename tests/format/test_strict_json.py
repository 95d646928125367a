"""Strict JSON: one meaning per text. Vectors, and a property against the standard library."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import BadInput, TooLarge
from headgate.format.strict_json import convert_into, decode, decode_into

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


class Inner(msgspec.Struct, rename="kebab"):
    snapshot_id: int


class Outer(msgspec.Struct):
    updates: list[Inner]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{}", {}),
        (b' {"a" : [1, 2.5, "x"] }\n', {"a": [1, 2.5, "x"]}),
        (b'{"a:b": ":", "c\\":": "\\\\"}', {"a:b": ":", 'c":': "\\"}),
        (b'{"k\\\\": {"k\\\\": 1}}', {"k\\": {"k\\": 1}}),
        (b'{"a": {"x": 1}, "b": {"x": 1}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (b'[{"a": 1}, {"a": 1}]', [{"a": 1}, {"a": 1}]),
        (b'"[[[[{{{{"', "[[[[{{{{"),
        (b"9223372036854775807", (1 << 63) - 1),
        (b"-9223372036854775808", -(1 << 63)),
        (b'"99999999999999999999999"', "99999999999999999999999"),
        (b"12345678901234567890123.5", 12345678901234567890123.5),
        (b"1e19", 1e19),
        (b'"\\ud83d\\ude00"', "😀"),
        ('"é漢"'.encode(), "é漢"),
    ],
)
def test_a_valid_text_gives_its_value(text: bytes, value: object) -> None:
    assert decode(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":{"a":1,"b":2,"a":3}}',
        b'[[{"k\\"":1,"k\\"":2}]]',
        b'{"a\\\\":1,"a\\\\":2}',
        b'{"":1,"":2}',
        b'{"a" \n:1,"a"\t: 2}',
    ],
)
def test_a_key_twice_in_one_object_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput, match="twice"):
        decode(text)


def test_a_duplicate_key_is_named() -> None:
    with pytest.raises(BadInput) as caught:
        decode(b'{"a":{"updates":1,"updates":2}}')
    assert caught.value.field == "updates"


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"[1,]", b'{"a":1,}', b"{} {}", b"1 2", b"01", b"'a'",
        b"{a:1}", b"/* c */ 1", b"\xef\xbb\xbf{}", b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\\ud800"',
        b'"\n"', b'"\x00"', b"1e400", b"nul", b"{", b"[", b'"abc', b"{}]", b"\\", b'\\"',
        b"9223372036854775808", b"-9223372036854775809", b"18446744073709551615",
        b'{"a":[123456789012345678901]}',
        b"1" * 5000, b"-" + b"9" * 100,
    ],
)  # fmt: skip
def test_what_parsers_disagree_about_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput):
        decode(text)


def test_depth_is_bounded_at_the_stated_level() -> None:
    assert decode(b"[" * 64 + b"]" * 64)
    for text in (b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65, b"[" * 200_000):
        with pytest.raises(BadInput, match="deeper"):
            decode(text)


def test_brackets_inside_strings_are_not_depth() -> None:
    assert decode(b'["' + b"[" * 1000 + b'"]')


def test_a_bomb_of_empty_lists_is_refused_before_it_is_built() -> None:
    with pytest.raises(TooLarge):
        decode(b"[" + b"[]," * 2_000_001 + b"[]]")


def test_strings_across_scan_windows_stay_strings() -> None:
    value = {"a": "x:{" * 900_000, "b": ["y" * 100] * 20_000}
    assert decode(msgspec.json.encode(value)) == value


@given(JSON_VALUES)
def test_every_value_survives_both_spellings(value: object) -> None:
    assert decode(json.dumps(value, ensure_ascii=True).encode()) == value
    assert decode(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@given(st.binary(max_size=40) | st.text('[]{}":,\\ab01.e- ', max_size=30).map(str.encode))
def test_no_bytes_make_anything_but_a_value_or_bad_input(text: bytes) -> None:
    try:
        value = decode(text)
    except BadInput:
        return
    assert json.loads(text) == value


def test_a_wrong_type_names_its_path() -> None:
    with pytest.raises(BadInput) as caught:
        decode_into(Outer, b'{"updates":[{"snapshot-id":1},{"snapshot-id":"x"}]}', "body")
    assert caught.value.field == "body.updates[1].snapshot-id"


def test_a_missing_field_names_its_path() -> None:
    with pytest.raises(BadInput) as caught:
        decode_into(Outer, b'{"updates":[{}]}')
    assert caught.value.field == "updates[0].snapshot-id"
    with pytest.raises(BadInput) as caught:
        convert_into(Outer, {})
    assert caught.value.field == "updates"


def test_typed_decoding_refuses_duplicates_too() -> None:
    with pytest.raises(BadInput, match="twice"):
        decode_into(Outer, b'{"updates":[],"updates":[{"snapshot-id":1}]}')


class Loose(msgspec.Struct, omit_defaults=True):
    """A kind that leaves open as much as any."""

    a: object = None
    b: dict[str, object] = msgspec.field(default_factory=dict)


def outcome(read: Callable[[], object]) -> object:
    """What is read, or how it is refused."""
    try:
        return read()
    except BadInput as error:
        return type(error), error.message


LOOSE_TEXTS = [
    b'{"a":1}',
    b'{"a":1,"a":1}',
    b'{"b":{"x":1,"x":2}}',
    b'{"a":{"x":1,"x":1}}',
    b'{"a":[{"x":1,"x":1}]}',
    b'{"a":1}{"a":1}',
    b'{"a":NaN}',
    b'{"a":123456789012345678901}',
    b'{"a":9223372036854775808}',
    b'{"a":' + b"[" * 70 + b"]" * 70 + b"}",
    b'{"a":"\xff"}',
    b'{"a":"' + b"[" * 70 + b'"}',
    b'{"a":1} ',
    b'{"a":1,"unknown":{"x":1,"x":1}}',
]


@pytest.mark.parametrize("text", LOOSE_TEXTS)
def test_a_text_that_is_read_as_a_kind_is_read_as_strictly(text: bytes) -> None:
    found, plain = outcome(lambda: decode_into(Loose, text)), outcome(lambda: decode(text))
    if isinstance(found, Loose):
        assert isinstance(plain, dict)
        assert (found.a, found.b) == (plain.get("a"), plain.get("b", {}))
    else:
        assert found == plain


@given(JSON_VALUES, JSON_VALUES, st.sampled_from(["a", "b", "c"]), st.booleans())
def test_a_key_that_comes_twice_is_refused_whatever_the_kind(
    first: object, second: object, key: str, compact: bool
) -> None:
    one, other = (
        json.dumps({key: value}, separators=(",", ":") if compact else None, ensure_ascii=False)
        for value in (first, second)
    )
    text = f"{one[:-1]},{other[1:]}".encode()
    for kind in (Loose, dict, object):
        with pytest.raises(BadInput, match="twice"):
            decode_into(kind, text)

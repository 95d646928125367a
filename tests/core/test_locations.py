"""No location names anything outside the roots, however it is read; legal ones keep one form."""

from __future__ import annotations

import os
import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.locations import (
    FILE_PATH_BYTES_MAX,
    PATH_PROPERTIES,
    S3_KEY_BYTES_MAX,
    LocationPolicy,
    canonical,
    canonical_file,
    check_properties,
    find_spellings,
    find_stem,
)
from headgate.errors import LocationRefused

POLICY = LocationPolicy(("file:///wh/main", "s3://lake/wh"))

# Name and location, in Python's string escapes. None may pass, chosen by a client or named by an engine.
ESCAPES = r"""
plain path elsewhere              | /etc/passwd
file uri elsewhere                | file:///etc/passwd
java file uri elsewhere           | file:/etc/passwd
bucket elsewhere                  | s3://other/wh/t
bucket with our name as prefix    | s3://lake2/wh/t
bucket with our name as suffix    | s3://my-lake/wh/t
key elsewhere                     | s3://lake/other/t
sibling with our prefix           | file:///wh/main2/t
sibling with a dash               | file:///wh/main-old/t
sibling key with our prefix       | s3://lake/wh2/t
parent of the root                | file:///wh
the root itself                   | file:///wh/main
the root itself with slash        | file:///wh/main/
the s3 root itself                | s3://lake/wh
the bucket                        | s3://lake
the bucket with slash             | s3://lake/
root of the file system           | /
root as uri                       | file:///
root in other case                | file:///WH/main/t
key in other case                 | s3://lake/WH/t
bucket in upper case              | s3://LAKE/wh/t
dot dot                           | file:///wh/main/../../etc
dot dot at the end                | file:///wh/main/t/..
dot dot inside, same place        | file:///wh/main/a/../b
dot dot in a key                  | s3://lake/wh/../other/t
dot dot from the bucket           | s3://lake/../other/t
dot dot in a plain path           | /wh/main/../x
dot dot in a java uri             | file:/wh/main/../x
dot dot before the root           | file:///x/../wh/main/t
dot segment                       | file:///wh/main/./t
dot at the end                    | s3://lake/wh/t/.
dot dot with slash at the end     | s3://lake/wh/t/../
escaped dot dot                   | file:///wh/main/%2e%2e/x
escaped dot dot, upper case       | file:///wh/main/%2E%2E/x
half escaped dot dot              | file:///wh/main/.%2e/x
other half escaped                | file:///wh/main/%2e./x
escaped dot dot and slash         | file:///wh/main/%2e%2e%2fx
dot dot and escaped slash         | file:///wh/main/..%2fx
dot dot and escaped slash, upper  | s3://lake/wh/..%2Fx
escaped slash then dot dot        | s3://lake/wh/a%2f../x
escaped slashes around dot dot    | s3://lake/wh/a%2f..%2fb
dot dot and escaped backslash     | s3://lake/wh/..%5cx
escaped backslash then dot dot    | s3://lake/wh/a%5c..%5cb
one escaped dot segment           | s3://lake/wh/%2e/t
escaped dot in a name             | s3://lake/wh/a%2eb
twice escaped dot dot             | file:///wh/main/%252e%252e/x
twice escaped dot dot and slash   | file:///wh/main/%252e%252e%252fx
twice escaped slash and dot dot   | file:///wh/main/a%252f..%252fb
dot dot and twice escaped slash   | file:///wh/main/..%252fx
split escape of a dot             | file:///wh/main/%%32e%%32e/x
split escape of a slash           | file:///wh/main/..%%32fx
escape of an escape of hex        | file:///wh/main/%2%65%2%65/x
overlong dot                      | file:///wh/main/%c0%ae%c0%ae/x
overlong slash                    | file:///wh/main/..%c0%afx
overlong dot of three             | file:///wh/main/%e0%80%ae/x
bare continuation byte            | file:///wh/main/%80/x
escaped surrogate                 | file:///wh/main/%ed%a0%80/x
unicode escape of a browser       | file:///wh/main/%u002e%u002e/x
percent without digits            | file:///wh/main/100%
percent with one digit            | file:///wh/main/a%2
percent with bad digits           | file:///wh/main/a%zz
percent with a space              | file:///wh/main/a% 2e
escaped NUL                       | file:///wh/main/t%00.json
NUL                               | file:///wh/main/t\x00.json
NUL at the end                    | file:///wh/main/t\x00
NUL in the bucket                 | s3://lake\x00.evil/wh/t
newline                           | file:///wh/main/a\nb
newline at the end                | file:///wh/main/t\n
carriage return                   | file:///wh/main/a\rb
header splitting                  | s3://lake/wh/a\r\nHost: evil
tab                               | file:///wh/main/a\tb
escape character                  | file:///wh/main/\x1b[2Jt
unit separator                    | file:///wh/main/a\x1fb
delete character                  | file:///wh/main/a\x7fb
next line, C1                     | file:///wh/main/a\x85b
line separator                    | file:///wh/main/a\u2028b
paragraph separator               | file:///wh/main/a\u2029b
right to left override            | file:///wh/main/a\u202egnp.exe
left to right isolate             | file:///wh/main/a\u2066b
arabic letter mark                | file:///wh/main/a\u061cb
byte order mark                   | \ufefffile:///wh/main/t
byte order mark inside            | file:///wh/main/a\ufeffb
lone surrogate                    | file:///wh/main/a\ud800b
lone low surrogate                | file:///wh/main/a\udc80b
decomposed letter                 | file:///wh/main/e\u0301
decomposed hangul                 | s3://lake/wh/\u1112\u1161\u11ab
angstrom sign                     | s3://lake/wh/\u212b
leading space                     |  \x20file:///wh/main/t
trailing space                    | file:///wh/main/t\x20
trailing no-break space           | file:///wh/main/t\xa0
leading ideographic space         | \u3000/wh/main/t
backslash                         | file:///wh/main\\..\\x
backslash in a key                | s3://lake/wh/a\\b
backslash as separator            | \\wh\\main\\t
windows drive                     | C:\\wh\\main\\t
windows drive with slashes        | C:/wh/main/t
windows share                     | \\\\host\\share
share with slashes                | //host/share/t
double slash                      | file:///wh//main/t
double slash at the start         | //wh/main/t
double slash at the end           | file:///wh/main/t//
double slash in a key             | s3://lake/wh//t
double slash after the bucket     | s3://lake//wh/t
four slashes                      | file:////wh/main/t
five slashes                      | file://///wh/main/t
query                             | file:///wh/main/t?x=1
query in a key                    | s3://lake/wh/t?versionId=1
query before the path             | s3://lake?x=/wh/t
fragment                          | file:///wh/main/t#a
fragment before the path          | s3://lake#/wh/t
wildcard                          | s3://lake/wh/*
wildcard in a name                | file:///wh/main/t*
wildcard bucket                   | s3://*/wh/t
user                              | s3://user@lake/wh/t
user and password                 | s3://key:secret@lake/wh/t
our bucket as user                | s3://lake@other/wh/t
port                              | s3://lake:9000/wh/t
endpoint as bucket                | s3://s3.evil.example:443/lake/wh/t
file with user                    | file://root@localhost/wh/main/t
file with host                    | file://host/wh/main/t
file with address                 | file://127.0.0.1/wh/main/t
file with port                    | file://localhost:80/wh/main/t
file with host dot dot            | file://../wh/main/t
file with root as host            | file://wh/main/t
file with LOCALHOST               | file://LOCALHOST/wh/main/t
file with no path                 | file://localhost
file with nothing                 | file:
file with two slashes             | file://
relative file                     | file:wh/main/t
relative file with dots           | file:../wh/main/t
relative path                     | wh/main/t
relative with dots                | ../wh/main/t
relative with one dot             | ./wh/main/t
home                              | ~/wh/main/t
empty                             |
a dot                             | .
two dots                          | ..
s3 without slashes                | s3:lake/wh/t
s3 with one slash                 | s3:/lake/wh/t
s3 with three slashes             | s3:///lake/wh/t
s3 with nothing                   | s3://
s3a elsewhere                     | s3a://other/wh/t
s3n dot dot                       | s3n://lake/wh/../x
bucket too short                  | s3://la/wh/t
bucket with underscore            | s3://la_ke/wh/t
bucket that begins with a dash    | s3://-lake/wh/t
bucket that ends with a dot       | s3://lake./wh/t
bucket with two dots              | s3://la..ke/wh/t
bucket with dot and dash          | s3://la.-ke/wh/t
bucket with escape                | s3://la%6be/wh/t
bucket that decodes to ours       | s3://%6cake/wh/t
metadata service as bucket        | s3://169.254.169.254/latest/meta-data
loopback as bucket                | s3://127.0.0.1/wh/t
bucket in unicode                 | s3://l\xe5ke/wh/t
bucket in full width              | s3://\uff4cake/wh/t
http                              | http://lake/wh/t
https                             | https://lake.s3.amazonaws.com/wh/t
metadata service                  | http://169.254.169.254/latest/meta-data
ftp                               | ftp://host/wh/main/t
data                              | data:text/plain,x
hdfs                              | hdfs://host/wh/main/t
hdfs without host                 | hdfs:///wh/main/t
gs                                | gs://lake/wh/t
abfss                             | abfss://c@a.dfs.core.windows.net/wh
jdbc                              | jdbc:sqlite:/wh/main/t
jar                               | jar:file:/wh/main/t!/x
nested scheme                     | s3:file:///wh/main/t
scheme twice                      | file:file:///wh/main/t
s3 express look-alike             | s3x://lake/wh/t
scheme with NUL                   | file\x00:///wh/main/t
scheme with a space               | file ://wh/main/t
scheme escaped                    | %66ile:///wh/main/t
no scheme                         | ://wh/main/t
javascript                        | javascript:alert(1)
proc of the server                | /proc/self/environ
proc by root                      | /proc/self/root/wh/main/t
"""

# Refused as a place that a client chooses, legal as a file that an engine named after a partition value.
ESCAPED_VALUES = r"""
value with a slash                | s3://lake/wh/t/data/path=a%2Fb/f.parquet
value that is a link              | s3://lake/wh/t/data/url=http%3A%2F%2Fexample.com%2Fx/f.parquet
value with a backslash            | file:///wh/main/t/data/p=a%5Cb/f.parquet
value with a percent sign         | file:///wh/main/t/data/p=100%25/f.parquet
value with a newline              | s3://lake/wh/t/data/p=a%0Ab/f.parquet
value with dots and a slash       | s3://lake/wh/t/data/p=v1.2%2F3/f.parquet
value with a next line, C1        | s3://lake/wh/t/data/p=%C2%85/f.parquet
"""

# What comes in, and the form that is stored and handed out.
LEGAL = r"""
/wh/main/t                                         | file:///wh/main/t
/wh/main/t/                                        | file:///wh/main/t
file:/wh/main/t                                    | file:///wh/main/t
file:///wh/main/t                                  | file:///wh/main/t
file:///wh/main/t/                                 | file:///wh/main/t
file://localhost/wh/main/t                         | file:///wh/main/t
FILE:///wh/main/t                                  | file:///wh/main/t
s3://lake/wh/t                                     | s3://lake/wh/t
s3://lake/wh/t/                                    | s3://lake/wh/t
S3://lake/wh/t                                     | s3://lake/wh/t
s3a://lake/wh/t                                    | s3://lake/wh/t
s3n://lake/wh/t                                    | s3://lake/wh/t
s3://lake/wh/ns.db/t                               | s3://lake/wh/ns.db/t
s3://lake/wh/.hidden/t                             | s3://lake/wh/.hidden/t
s3://lake/wh/t/a..b                                | s3://lake/wh/t/a..b
s3://lake/wh/t/...                                 | s3://lake/wh/t/...
s3://lake/wh/t/..a                                 | s3://lake/wh/t/..a
s3://lake/wh/t/data/day=2024-01-01/f.parquet       | s3://lake/wh/t/data/day=2024-01-01/f.parquet
s3://lake/wh/t/data/at=12%3A30%3A00/f.parquet      | s3://lake/wh/t/data/at=12%3A30%3A00/f.parquet
s3://lake/wh/t/data/at=12%3a30/f.parquet           | s3://lake/wh/t/data/at=12%3a30/f.parquet
s3://lake/wh/t/data/c=S%C3%A3o+Paulo/f.parquet     | s3://lake/wh/t/data/c=S%C3%A3o+Paulo/f.parquet
s3://lake/wh/t/data/c=two words/f.parquet          | s3://lake/wh/t/data/c=two words/f.parquet
s3://lake/wh/t/data/c=S\xe3o/f.parquet             | s3://lake/wh/t/data/c=S\xe3o/f.parquet
s3://lake/wh/t/data/c=\u6771\u4eac/f.parquet       | s3://lake/wh/t/data/c=\u6771\u4eac/f.parquet
s3://lake/wh/t/data/c=\U0001f600/f.parquet         | s3://lake/wh/t/data/c=\U0001f600/f.parquet
s3://lake/wh/t/data/c=%20/f.parquet                | s3://lake/wh/t/data/c=%20/f.parquet
s3://lake/wh/t/a:b@c,d;e&f$g!h'(i)[j]{k}|^~        | s3://lake/wh/t/a:b@c,d;e&f$g!h'(i)[j]{k}|^~
file:///wh/main/t/a:b                              | file:///wh/main/t/a:b
/wh/main/t/s3:                                     | file:///wh/main/t/s3:
"""


def table(text: str, *, last_bar: bool = False) -> list[tuple[str, str]]:
    rows = []
    for line in text.strip("\n").splitlines():
        left, _, right = line.rpartition(" | ") if last_bar else line.partition("|")
        rows.append((decoded(left), decoded(right)))
    return rows


def decoded(cell: str) -> str:
    return cell.strip(" ").encode("ascii", "backslashreplace").decode("unicode_escape")


@pytest.mark.parametrize(("name", "location"), table(ESCAPES), ids=lambda cell: ascii(cell)[:60])
def test_a_location_that_could_leave_the_roots_is_refused(name: str, location: str) -> None:
    for allow in (POLICY.allow, POLICY.allow_file):
        with pytest.raises(LocationRefused) as refused:
            allow(location, field="location")
        assert refused.value.field == "location"
        refused.value.message.encode()  # no lone surrogate gets out
        assert "\n" not in refused.value.message


def test_the_table_of_escapes_has_the_promised_size_and_no_line_twice() -> None:
    rows = table(ESCAPES)
    assert len(rows) >= 120
    assert len({location for _, location in rows}) == len(rows)
    assert len({name for name, _ in rows}) == len(rows)


@pytest.mark.parametrize(("name", "location"), table(ESCAPED_VALUES))
def test_an_escaped_partition_value_is_legal_in_a_file_but_not_in_a_chosen_place(
    name: str, location: str
) -> None:
    assert POLICY.allow_file(location, field="file") == location
    with pytest.raises(LocationRefused):
        POLICY.allow(location, field="location")


@pytest.mark.parametrize(("sent", "kept"), table(LEGAL, last_bar=True))
def test_a_legal_location_has_one_form(sent: str, kept: str) -> None:
    assert POLICY.allow(sent, field="location") == kept
    assert POLICY.allow_file(sent, field="location") == kept
    assert canonical(kept, field="location") == kept


@pytest.mark.parametrize("root", ["s3://lake", "s3://lake/", "s3a://lake", "/srv/wh", "s3://my.lake-1/a/b"])
def test_a_root_may_be_a_bucket_or_a_folder(root: str) -> None:
    policy = LocationPolicy((root,))
    assert not policy.roots[0].endswith("/")
    assert policy.allow(policy.roots[0] + "/t", field="location") == policy.roots[0] + "/t"


def test_a_policy_without_roots_allows_nothing() -> None:
    with pytest.raises(LocationRefused):
        LocationPolicy(()).allow("file:///wh/main/t", field="location")


def test_length_limits_are_met_exactly() -> None:
    key = "wh/" + "k" * (S3_KEY_BYTES_MAX - 3)
    assert canonical(f"s3://lake/{key}", field="f") == f"s3://lake/{key}"
    path = "/wh" + "/abcdefg" * ((FILE_PATH_BYTES_MAX - 3) // 8)
    path += "x" * (FILE_PATH_BYTES_MAX - len(path))
    assert canonical(path, field="f") == f"file://{path}"
    segment = "/wh/main/" + "é" * 127
    assert canonical(segment, field="f") == f"file://{segment}"
    for over in (
        f"s3://lake/{key}k",
        path + "x",
        segment + "é",
        "/" + "x/" * 9_000,
        "s3://lake/" + "é" * 600,
    ):
        with pytest.raises(LocationRefused):
            canonical(over, field="f")


def test_a_refusal_names_field_and_location_and_shows_no_raw_control_character() -> None:
    with pytest.raises(LocationRefused, match=r"field=updates\[0\]\.location") as refused:
        canonical("file:///wh/\nforged line", field="updates[0].location")
    assert refused.value.evidence["location"] == repr("file:///wh/\nforged line")


def test_a_long_refused_location_is_cut_in_the_message() -> None:
    with pytest.raises(LocationRefused) as refused:
        canonical("http://" + "x" * 5_000, field="f")
    assert len(refused.value.message) < 500


def test_a_location_under_a_parent_is_inside_it_and_not_beside_it() -> None:
    assert (
        POLICY.allow_under("/wh/main/t/m/1.json", "file:/wh/main/t/", field="f")
        == "file:///wh/main/t/m/1.json"
    )
    for outside in ("/wh/main/t", "/wh/main/t2/1.json", "/wh/main/u/1.json", "s3://lake/wh/t/1.json", "/x/y"):
        with pytest.raises(LocationRefused):
            POLICY.allow_under(outside, "file:///wh/main/t", field="f")
    with pytest.raises(LocationRefused):
        POLICY.allow_under("/etc/x/passwd", "/etc/x", field="f")


@pytest.mark.parametrize("name", sorted(PATH_PROPERTIES))
def test_each_path_property_is_checked(name: str) -> None:
    check_properties({name: "s3://lake/wh/t/data", "owner": "http://not-a-location"}, POLICY)
    for bad in ("s3://other/x", "http://evil", "", "/wh/main/../x"):
        with pytest.raises(LocationRefused) as refused:
            check_properties({name: bad}, POLICY)
        assert refused.value.field == f"properties.{name}"


def test_properties_that_hold_no_location_are_left_alone() -> None:
    check_properties({"write.location-provider.impl": "com.example.Provider", "x": "../.."}, POLICY)


NAMES = ("a", "t", "wh", "main", "lake", "é", " ", "=", "2e")
MARKS = (".", "..", "/", "//", "\\", ":", "@", "?", "#", "*", "%", "e\u0301", "\x00", "\n", "\u202e")
CODES = ("%2e", "%2E", "%2f", "%5c", "%25", "%252e", "%00", "%3A", "%C3%A9")
PIECES = st.sampled_from((*NAMES, *MARKS, *CODES))
STARTS = st.sampled_from(
    ("file:///wh/main/", "/wh/main/", "file:/wh/main/", "s3://lake/wh/", "s3a://lake/wh/", "")
)
LOCATIONS = st.builds(
    lambda start, pieces, noise: start + "".join(pieces) + noise,
    STARTS,
    st.lists(PIECES, max_size=8),
    st.text(max_size=4),
)


@given(LOCATIONS)
def test_whatever_is_accepted_stays_inside_its_root_however_it_is_read(location: str) -> None:
    for allow in (POLICY.allow, POLICY.allow_file):
        try:
            accepted = allow(location, field="f")
        except LocationRefused:
            continue
        assert_inside(accepted)
        assert allow(accepted, field="f") == accepted
        accepted.encode()


@given(LOCATIONS)
def test_what_a_client_may_choose_an_engine_may_name(location: str) -> None:
    try:
        chosen = canonical(location, field="f")
    except LocationRefused:
        return
    assert canonical_file(location, field="f") == chosen


def assert_inside(location: str) -> None:
    assert location.startswith(("file:///wh/main/", "s3://lake/wh/"))
    once = unquote(location)
    for reading in (location, once, unquote(once), once.replace("\\", "/")):
        scheme, _, rest = reading.partition("://")
        root = {"file": "/wh/main", "s3": "lake/wh"}[scheme]
        for resolved in (posixpath.normpath(rest), os.path.normpath(rest)):
            # An escaped slash alone, decoded, is the root itself: no file, and not outside either.
            assert (resolved + "/").startswith(root + "/"), (location, reading)


def test_a_location_is_found_under_every_spelling_that_engines_use() -> None:
    spellings = {"file:///a/b", "file:/a/b", "/a/b", "file://localhost/a/b"}
    assert {frozenset(find_spellings(spelling)) for spelling in spellings} == {frozenset(spellings)}
    assert find_spellings("s3a://b/k") == ("s3a://b/k", "s3://b/k", "s3n://b/k")
    assert find_spellings("mem://b/k") == ("mem://b/k",)


@given(LOCATIONS)
def test_all_spellings_of_a_location_have_one_stem(location: str) -> None:
    assert {find_stem(spelling) for spelling in find_spellings(location)} == {find_stem(location)}

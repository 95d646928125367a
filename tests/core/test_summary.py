"""Partitions that are the same are seen to be, and a snapshot's counters are Java's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headgate.core.manifest import ContentFile, FileContent
from headgate.core.summary import count_changes, summarise, summarise_append
from headgate.core.taken import partition_of


def _vector(offset: int, size: int | None = 42) -> ContentFile:
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        file_path="s3://lake/t/data/all.puffin",
        file_format="PUFFIN",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=500,
        content_offset=offset,
        content_size_in_bytes=size,
    )


def _in(*values: float | None) -> ContentFile:
    partition = tuple(enumerate(values, start=1000))
    return ContentFile(FileContent.DATA, f"s3://lake/t/{values}", "PARQUET", 0, partition, 1, 100)


def test_vectors_in_one_file_count_their_own_bytes_of_it() -> None:
    counts = count_changes([_vector(4), _vector(46, 44)], [_vector(4, 40)])
    found = summarise("delete", counts, {}, {"total-files-size": "1000"})
    assert (found["added-files-size"], found["removed-files-size"]) == ("86", "40")
    assert found["total-files-size"] == "1046"


def test_files_of_the_partition_nan_are_in_one_partition() -> None:
    one, two = float("nan"), float("nan")
    assert partition_of(_in(one, 1.0)) == partition_of(_in(two, 1.0))
    assert partition_of(_in(one)) in frozenset((partition_of(_in(two)),))
    assert partition_of(_in(one)) != partition_of(_in(None))
    assert count_changes([_in(one), _in(two)], [])["changed-partition-count"] == 1


NAMES = ("records", "files-size", "data-files", "delete-files", "position-deletes", "equality-deletes")
TEXTS = (
    "0",
    "0",
    "7",
    "007",
    "",
    "-1",
    "+1",
    " 1",
    "1_0",
    "\u0661",
    "x",
    str(2**63 - 2),
    str(2**63 - 1),
    "9" * 40,
)
known = st.just("0") | st.integers(0, 2**40).map(str)


@given(
    files=st.lists(
        st.builds(
            ContentFile,
            st.just(FileContent.DATA),
            st.just("f"),
            st.just("PARQUET"),
            st.just(0),
            st.sampled_from((((1000, 1),), ((1000, None),))),
            st.sampled_from((0, 1, 9)),
            st.sampled_from((0, 1, 2**40)),
        ),
        min_size=1,
        max_size=3,
    ),
    extra=st.sampled_from(({}, {"who": "me"})),
    totals=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS) | known)
    | st.tuples(*[known] * 3, *[st.just("0") | st.sampled_from(TEXTS)] * 3).map(
        lambda t: dict(zip(NAMES, t, strict=True))
    )
    | st.tuples(*[st.sampled_from(TEXTS)] * 3, *[st.just("0")] * 3).map(
        lambda t: dict(zip(NAMES, t, strict=True))
    ),
)
def test_an_append_is_summed_up_as_any_other_change_is(
    files: list[ContentFile], extra: dict[str, str], totals: dict[str, str]
) -> None:
    previous = {f"total-{name}": text for name, text in totals.items()}
    found = summarise_append(files, extra, previous)
    expected = summarise("append", count_changes(files, []), extra, previous)
    assert list(found.items()) == list(expected.items())


def test_a_total_of_thousands_of_digits_is_not_known() -> None:
    found = summarise("append", {"added-records": 1}, {}, {"total-records": "9" * 5000})
    assert "total-records" not in found

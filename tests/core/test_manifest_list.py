"""The manifests of a snapshot: a list that grew notes what one made at once notes, and new ones are numbered alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.core.build import list_next
from headgate.core.manifest import ManifestContent, ManifestFile
from headgate.core.manifest_list import ManifestList
from headgate.core.manifest_merge import MergePolicy, Rest
from tests.core.builders import table

REST = Rest(MergePolicy(), 7, 10**6)


@st.composite
def _manifests(draw: st.DrawFn, prefix: str) -> list[ManifestFile]:
    found = []
    for number in range(draw(st.integers(0, 20))):
        content = draw(st.sampled_from([*ManifestContent, ManifestContent.DATA, ManifestContent.DATA]))
        files = draw(st.sampled_from([1, 1, 1, 0, None]))
        made = ManifestFile(f"{prefix}{number}", 10, 0, content, 1, 1, 1, files, 0, 0, 5, 3, 0)
        is_numbered = content is ManifestContent.DATA and draw(st.booleans())
        found.append(replace(made, first_row_id=number * 100) if is_numbered else made)
    return found


def _facts(listed: ManifestList) -> tuple[object, ...]:
    return list(listed), listed.length, listed.dead, listed.unnumbered, listed.deletes, listed.rest


@given(_manifests("a"), st.lists(_manifests("b"), max_size=3), st.sampled_from([None, REST]))
def test_a_list_that_grew_notes_what_one_made_at_once_notes(
    first: list[ManifestFile], later: list[list[ManifestFile]], rest: Rest | None
) -> None:
    grown, expected = ManifestList.of(first), first
    for turn, manifests in enumerate(later):
        new = [replace(one, manifest_path=f"{turn}-{one.manifest_path}") for one in manifests]
        dead = set(grown.dead)
        expected = [*new, *[one for one in expected if one.manifest_path not in dead]]
        grown = grown.next(new, None, rest)
        whole = ManifestList.of(expected)
        assert _facts(grown)[:-1] == _facts(whole)[:-1]
        assert not new or grown.rest is rest
        assert all(grown.find(one.manifest_path) == one for one in expected)


def test_appends_one_by_one_make_one_block_of_sixteen() -> None:
    listed = ManifestList()
    for number in range(40):
        listed = listed.next([ManifestFile(f"m{number}", 1, 0, ManifestContent.DATA, 1, 1, 1, 1, 0)])
    assert [len(block.manifests) for block in listed.blocks] == [1] * 8 + [16, 16]


@given(_manifests("a"), _manifests("b"), st.sampled_from([None, REST]), st.booleans())
def test_row_ids_are_the_same_whether_all_manifests_are_looked_at_or_only_new_ones(
    first: list[ManifestFile], new: list[ManifestFile], rest: Rest | None, numbered: bool
) -> None:
    envelope = table(version=3).envelope
    parent = ManifestList.of(first)
    if numbered:  # then only new ones are
        parent, _ = parent.numbered(10**6)
    listed, next_row_id = list_next(parent, new, envelope, rest=rest)
    expected, expected_id = parent.next(new).numbered(envelope.next_row_id or 0)
    expected = expected if rest is None else expected.resting(rest.after(new))
    assert (_facts(listed), next_row_id) == (_facts(expected), expected_id)


@pytest.mark.parametrize("version", [1, 2])
def test_no_manifest_gets_a_row_id_before_v3(version: int) -> None:
    new = ManifestFile("m", 1, 0, ManifestContent.DATA, 1, 1, 1, 1, 0, 0, 5, 0, 0)
    listed, next_row_id = list_next(ManifestList(), [new], table(version=version).envelope)
    assert (list(listed), next_row_id) == ([new], 0)

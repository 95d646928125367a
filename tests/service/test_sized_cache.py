"""A cache counted in bytes: what is used stays, what is not goes first."""

from __future__ import annotations

from headgate.service.sized_cache import SizedCache


def test_what_was_not_used_for_longest_makes_room() -> None:
    cache: SizedCache[str, int] = SizedCache(100)
    for number, key in enumerate("abc"):
        cache.put(key, number, size_bytes=30)
    assert cache.get("a") == 0
    cache.put("d", 3, size_bytes=30)
    assert [cache.get(key) for key in "abcd"] == [0, None, 2, 3]
    assert cache.size_bytes == 90


def test_a_value_that_is_there_already_stays_and_counts_once() -> None:
    cache: SizedCache[str, int] = SizedCache(100)
    cache.put("a", 1, size_bytes=30)
    cache.put("a", 2, size_bytes=30)
    assert (cache.get("a"), cache.size_bytes) == (1, 30)


def test_the_newest_value_stays_however_large_it_is() -> None:
    cache: SizedCache[str, int] = SizedCache(100)
    cache.put("a", 1, size_bytes=30)
    cache.put("b", 2, size_bytes=500)
    assert (cache.get("a"), cache.get("b"), cache.size_bytes) == (None, 2, 500)


def test_many_that_are_asked_for_at_once_are_used_as_if_asked_for_one_by_one() -> None:
    cache: SizedCache[str, int] = SizedCache(100)
    for number, key in enumerate("abc"):
        cache.put(key, number, size_bytes=30)
    assert cache.get_all("xa") == [None, 0]
    cache.put("d", 3, size_bytes=30)
    assert cache.get_all("abcd") == [0, None, 2, 3]

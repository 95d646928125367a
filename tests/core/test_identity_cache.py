"""What is remembered by identity is found for the very same objects only, and is never too much."""

from __future__ import annotations

from headgate.core.identity_cache import IdentityCache


def test_only_the_very_same_objects_find_what_was_made_of_them() -> None:
    cache: IdentityCache[str] = IdentityCache()
    key = ([1], {"a": "b"})
    assert cache.find(key) is None
    assert cache.keep(key, "made") == "made"
    assert cache.find((key[0], key[1])) == "made"
    assert cache.get(key, lambda: "made again") == "made"
    assert cache.find(([1], {"a": "b"})) is None


def test_the_oldest_goes_when_there_are_too_many() -> None:
    cache: IdentityCache[int] = IdentityCache(limit=2)
    keys = [(object(),) for _ in range(3)]
    for number, key in enumerate(keys):
        cache.keep(key, number)
    assert [cache.find(key) for key in keys] == [None, 1, 2]

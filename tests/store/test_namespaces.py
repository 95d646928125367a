"""Contract: namespaces."""

from __future__ import annotations

import pytest

from headgate.errors import BadInput
from headgate.store.base import DropNamespace, Namespace, Reason, Refused, SetNamespaceProperties, Store
from tests.store.builders import Catalog, namespace, rename, table, view


def reason(refused: Refused | None) -> Reason | None:
    return None if refused is None else refused.reason


def test_a_created_namespace_is_loaded_as_written(store: Store) -> None:
    assert store.write([namespace("a", owner="ann", note="ü\u0000\n")]) is None
    assert store.load_namespace(("a",)) == Namespace(("a",), {"owner": "ann", "note": "ü\u0000\n"}, 1)
    assert store.load_namespace(("b",)) is None
    assert store.load_namespace(()) is None


def test_a_namespace_needs_its_parent(store: Store) -> None:
    assert reason(store.write([namespace("a", "b")])) is Reason.NAMESPACE_MISSING
    assert store.write([namespace("a"), namespace("a", "b")]) is None
    assert store.load_namespace(("a", "b")) is not None


def test_a_namespace_is_created_once(store: Store) -> None:
    assert store.write([namespace("a", who="first")]) is None
    assert reason(store.write([namespace("a", who="second")])) is Reason.NAMESPACE_EXISTS
    loaded = store.load_namespace(("a",))
    assert loaded is not None
    assert loaded.properties == {"who": "first"}


def test_levels_with_dots_are_not_confused_with_more_levels(store: Store) -> None:
    assert store.write([namespace("a"), namespace("a.b"), namespace("a", "b")]) is None
    assert store.list_namespaces((), after=None, limit=9) == [("a",), ("a.b",)]
    assert store.list_namespaces(("a",), after=None, limit=9) == [("a", "b")]


@pytest.mark.parametrize("levels", [(), ("",), ("a", ""), ("a\x1fb",), ("a\x00",)])
def test_a_level_that_could_be_mistaken_for_another_is_refused(store: Store, levels: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as caught:
        store.write([namespace("a"), namespace(*levels)])
    assert caught.value.field == "namespace"
    assert store.load_namespace(("a",)) is None


def test_properties_are_replaced_only_at_the_expected_version(store: Store) -> None:
    assert store.write([namespace("a", x="1")]) is None
    assert store.write([SetNamespaceProperties(("a",), 1, {"y": "2"})]) is None
    assert store.load_namespace(("a",)) == Namespace(("a",), {"y": "2"}, 2)
    late = store.write([SetNamespaceProperties(("a",), 1, {"z": "3"})])
    assert reason(late) is Reason.NAMESPACE_CHANGED
    assert reason(store.write([SetNamespaceProperties(("b",), 1, {})])) is Reason.NAMESPACE_MISSING
    assert store.load_namespace(("a",)) == Namespace(("a",), {"y": "2"}, 2)


def test_a_version_read_before_a_drop_does_not_fit_the_namespace_made_after_it(store: Store) -> None:
    assert store.write([namespace("a", secret="old")]) is None
    old = store.load_namespace(("a",))
    assert old is not None
    assert store.write([DropNamespace(("a",)), namespace("a")]) is None
    late = store.write([SetNamespaceProperties(("a",), old.version, {"secret": "old"})])
    assert reason(late) is Reason.NAMESPACE_CHANGED


def test_only_an_empty_namespace_is_dropped(catalog: Catalog) -> None:
    store = catalog.store
    catalog.must(namespace("db"), namespace("db", "sub"))
    assert reason(store.write([DropNamespace(("db",))])) is Reason.NAMESPACE_NOT_EMPTY
    catalog.must(DropNamespace(("db", "sub")), table("t"))
    assert reason(store.write([DropNamespace(("db",))])) is Reason.NAMESPACE_NOT_EMPTY
    catalog.must(namespace("other"), rename(catalog.header(), "t", namespace=("other",)), view("v"))
    assert reason(store.write([DropNamespace(("db",))])) is Reason.NAMESPACE_NOT_EMPTY
    assert reason(store.write([DropNamespace(("nope",))])) is Reason.NAMESPACE_MISSING
    assert reason(store.write([DropNamespace(())])) is Reason.NAMESPACE_MISSING
    catalog.must(namespace("empty"), DropNamespace(("empty",)))
    assert store.load_namespace(("empty",)) is None


def test_children_are_listed_by_code_point_page_by_page(store: Store) -> None:
    names = ["B", "Z", "_x", "a", "a b", "b", "é", "中", "\U0001f600"]
    assert store.write([namespace(name) for name in reversed(names)]) is None
    assert store.write([namespace("a", "child")]) is None
    listed: list[str] = []
    while page := store.list_namespaces((), after=listed[-1] if listed else None, limit=4):
        listed.extend(levels[0] for levels in page)
    assert listed == sorted(names)
    assert store.list_namespaces(("a",), after=None, limit=4) == [("a", "child")]
    assert store.list_namespaces(("nope",), after=None, limit=4) == []

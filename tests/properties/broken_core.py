"""The core with one rule taken out of its source: what the rule is for shows in what goes wrong without it.

Every refusal of the core is a `return` of a finding that names its rule. `plans_without` compiles the judging
modules anew with the returns of one rule removed; classes and everything else are the originals.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from types import ModuleType
from typing import Any

from headgate.core import conflicts, live, plan
from tests.properties.lake import Plans

_JUDGES = (conflicts, live, plan)  # in the order in which they use each other
_FINDERS = ("Finding", "_found")


def _slug_of(node: ast.AST) -> str | None:
    """The rule that a statement refuses by, if it does."""
    call = node.value if isinstance(node, ast.Return) else None
    if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") in _FINDERS):
        return None
    return next(
        (a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)), None
    )


def find_rules() -> frozenset[str]:
    """All rules by which the core refuses a change."""
    trees = (ast.parse(inspect.getsource(module)) for module in _JUDGES)
    return frozenset(
        slug for tree in trees for node in ast.walk(tree) if (slug := _slug_of(node)) is not None
    )


class _TakeOut(ast.NodeTransformer):
    def __init__(self, slugs: tuple[str, ...]) -> None:
        self.slugs = slugs
        self.taken: set[str] = set()

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        slug = _slug_of(node)
        if slug not in self.slugs:
            return node
        self.taken.add(slug)
        return ast.copy_location(ast.Pass(), node)


def plans_without(*slugs: str) -> Plans:
    """`plan_change` as it would be without these rules."""
    taken: set[str] = set()
    changed: dict[str, Any] = {}
    for module in _JUDGES:
        names, found = _compile(module, slugs, changed)
        taken |= found
        changed |= names
    assert taken == set(slugs), f"no rules named {set(slugs) - taken}"
    broken: Plans = changed["plan_change"]
    return broken


def _compile(
    module: ModuleType, slugs: tuple[str, ...], changed: dict[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """The functions and tables of a module, anew, over those of the modules before; and the rules taken out."""
    tree = ast.parse(inspect.getsource(module))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AnnAssign)]
    transformer = _TakeOut(slugs)
    transformer.visit(tree)
    imported = {name: value for name, value in changed.items() if name in vars(module)}
    space: dict[str, Any] = {**vars(module), **imported}
    flags = __future__.annotations.compiler_flag
    exec(compile(tree, f"{module.__name__} without {slugs}", "exec", flags=flags, dont_inherit=True), space)
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name: space[name] for name in own}, transformer.taken

"""The bans and limits of STYLE.md that a machine can check, one function each: a module in, findings out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import PurePosixPath

from tests.tidy.layers import find_impure_calls, find_layer_breaches

LINES_MAX = 450
WORDS_MIN = 4
_EMPTY_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "misc", "data"})
_EMPTY_CLASS = re.compile(r"Manager|Helper|Utils?(?![a-z])")
_LEFT_OPEN = re.compile(r"\bTO" + r"DO\b|\bFIX" + r"ME\b")  # in halves, so that this file passes
_STATUS_ROOM = PurePosixPath("src/headgate/service/http_errors.py")

# Tests that wait for real time, each with the reason why nothing else would do.
SLEEPS_ALLOWED: dict[str, str] = {
    "tests/chaos/rest.py": "a client that lost its answer backs off before it asks again, as real ones do",
    "tests/chaos/crashing_service.py": "another process is asked until it answers",
    "tests/chaos/test_kill_points.py": "another process writes a file behind its answer, and says nowhere when",
    "tests/s3_server.py": "a foreign server says nowhere when it listens, so it is asked until it answers",
}


@dataclass(frozen=True)
class Module:
    """One Python file, by its path from the top of the repository."""

    path: PurePosixPath
    source: str
    tree: ast.Module = field(init=False)
    lines: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", ast.parse(self.source))
        object.__setattr__(self, "lines", tuple(self.source.splitlines()))

    def at(self, node: ast.stmt | ast.expr | ast.ExceptHandler) -> str:
        """Where a node stands, for a message."""
        return f"{self.path}:{node.lineno}"

    def line(self, node: ast.stmt | ast.ExceptHandler) -> str:
        """The text of the line a node begins on."""
        return self.lines[node.lineno - 1]


Rule = Callable[[Module], Iterator[str]]


def imports_go_down(module: Module) -> Iterator[str]:
    """STYLE 1.2."""
    return find_layer_breaches(module.path, module.tree)


def pure_rooms_are_pure(module: Module) -> Iterator[str]:
    """STYLE 1.1."""
    return find_impure_calls(module.path, module.tree)


def everything_is_caught_at_the_edge_only(module: Module) -> Iterator[str]:
    """STYLE 6: a handler for everything says that it is the outermost edge, or raises again."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler) or "# outermost edge" in module.line(node):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {"" if one is None else ast.unparse(one) for one in caught}
        # Cleaning up on the way out must see every exception; to swallow one it would have to end otherwise.
        cleans_up = names == {"BaseException"} and isinstance(node.body[-1], ast.Raise)
        if names & {"", "Exception", "BaseException"} and not cleans_up:
            yield f"{module.at(node)}: catches everything"


def imports_stand_at_the_top(module: Module) -> Iterator[str]:
    """STYLE 1.2: an import inside a function says why on its line."""
    for function in _functions(module.tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and "# optional extra" not in module.line(node):
                yield f"{module.at(node)}: import inside a function"


def only_the_command_line_prints(module: Module) -> Iterator[str]:
    """A library that prints cannot be used by a program that prints."""
    if module.path.is_relative_to("src/headgate/cli"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            yield f"{module.at(node)}: print outside cli"


def packages_only_export(module: Module) -> Iterator[str]:
    """STYLE 1.5."""
    if module.path.name != "__init__.py":
        return
    for node in module.tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or isinstance(node, ast.Import | ast.ImportFrom):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else []
        if not targets or {ast.unparse(target) for target in targets} - {"__all__", "__version__"}:
            yield f"{module.at(node)}: more than exports in __init__.py"


def modules_are_small(module: Module) -> Iterator[str]:
    """STYLE 1.4, with some slack: past this there is a second room inside."""
    if len(module.lines) > LINES_MAX:
        yield f"{module.path}: {len(module.lines)} lines; at most {LINES_MAX}"


def modules_say_what_they_are_for(module: Module) -> Iterator[str]:
    """STYLE 7."""
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: no docstring"


def nothing_is_left_open(module: Module) -> Iterator[str]:
    """STYLE 7: what is not done is not on the main branch."""
    for number, line in enumerate(module.lines, start=1):
        if found := _LEFT_OPEN.search(line):
            yield f"{module.path}:{number}: {found.group()}"


def names_say_something(module: Module) -> Iterator[str]:
    """STYLE 2: a name for everything is a name for nothing."""
    for part in (*module.path.parent.parts, module.path.stem):
        if part in _EMPTY_NAMES:
            yield f"{module.path}: a module named {part}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and _EMPTY_CLASS.search(node.name):
            yield f"{module.at(node)}: a class named {node.name}"


def private_names_stay_at_home(module: Module) -> Iterator[str]:
    """STYLE 2: `_name` is private to its module, for tests too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("headgate")):
            for alias in node.names:
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    yield f"{module.at(node)}: imports the private {alias.name}"


def error_statuses_live_in_one_table(module: Module) -> Iterator[str]:
    """STYLE 6: which status an error has is said once."""
    if module.path == _STATUS_ROOM:
        return
    for node in ast.walk(module.tree):
        if any(_is_error_status(value) for value in _statuses_set(node)):
            yield f"{module.path}:{getattr(node, 'lineno', 0)}: an HTTP error status outside http_errors.py"


def names_of_tests_are_sentences(module: Module) -> Iterator[str]:
    """STYLE 9: `test_` and then at least four words."""
    for function in _functions(module.tree):
        name = function.name
        if name.startswith("test") and len([word for word in name.split("_")[1:] if word]) < WORDS_MIN:
            yield f"{module.path}:{function.lineno}: {name} is no sentence"


def no_test_sleeps(module: Module) -> Iterator[str]:
    """STYLE 9: a sleep is a guess about another thread."""
    if str(module.path) in SLEEPS_ALLOWED:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            if any(alias.name == "sleep" for alias in node.names):
                yield f"{module.path}:{node.lineno}: imports time.sleep"
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep":
            yield f"{module.path}:{node.lineno}: time.sleep"


EVERYWHERE: tuple[Rule, ...] = (nothing_is_left_open, private_names_stay_at_home)
SOURCE: tuple[Rule, ...] = (
    imports_go_down,
    pure_rooms_are_pure,
    everything_is_caught_at_the_edge_only,
    imports_stand_at_the_top,
    only_the_command_line_prints,
    packages_only_export,
    modules_are_small,
    modules_say_what_they_are_for,
    names_say_something,
    error_statuses_live_in_one_table,
)
TESTS: tuple[Rule, ...] = (names_of_tests_are_sentences, no_test_sleeps)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _statuses_set(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions that become the status of an answer."""
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rsplit(".", 1)[-1]
        if name.endswith(("Response", "HTTPException")):
            yield from node.args
        for keyword in node.keywords:
            if keyword.arg in {"status", "status_code"}:
                yield keyword.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in {"status", "status_code"}:
                yield value


def _is_error_status(value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int) and 400 <= value.value < 600
    text = ast.unparse(value)
    if "HTTPStatus." in text:
        status = getattr(HTTPStatus, text.rsplit("HTTPStatus.", 1)[1], None)
        return isinstance(status, HTTPStatus) and status >= 400
    return re.search(r"\bHTTP_[45]\d\d_", text) is not None

"""Pipelines from files: TOML, or Python with a `pipeline` of the same shape and perhaps a `transform`.

A Python file is run to be read, with all that it does at its top; TOML runs nothing but the module that it names.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from headgate.errors import BadInput
from headgate.spark.pipeline_spec import Pipeline, read_spec

_SIZE_BYTES_MAX = 1 << 20
_RUN_NAME = "__pipeline__"  # what a Python file sees as its name


def read_pipeline(path: str | Path) -> Pipeline:
    """A pipeline from a file; BadInput names the file and the key at fault."""
    file = Path(path)
    text = _read(file)
    match file.suffix:
        case ".toml":
            try:
                raw: object = tomllib.loads(text)
            except tomllib.TOMLDecodeError as error:
                raise BadInput(f"{file}: not valid TOML: {error}", field=str(file)) from error
            return read_spec(raw, file=file, load=lambda name: _load_function(name, file))
        case ".py":
            return _read_python(file)
    raise BadInput(f"{file}: expected a file that ends in .toml or .py", field=str(file))


def _read(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}", field=str(file)) from error
    if len(data) > _SIZE_BYTES_MAX:
        raise BadInput(f"{file}: {len(data)} bytes, at most {_SIZE_BYTES_MAX} are read", field=str(file))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{file}: not UTF-8: {error}", field=str(file)) from error


def _read_python(file: Path) -> Pipeline:
    with _importable(file.absolute().parent), _named(file):
        # Not left among the modules: what workers run of it is then sent to them, not looked up by its name.
        found = runpy.run_path(str(file), run_name=_RUN_NAME)
    if "pipeline" not in found:
        raise BadInput(f"{file}: has no pipeline = {{…}}", field="pipeline")
    function = found.get("transform")
    if function is not None and not callable(function):
        raise BadInput(f"{file}: transform: expected a function", field="transform")
    return read_spec(
        found["pipeline"], file=file, load=lambda name: _load_function(name, file), function=function
    )


def _load_function(name: str, file: Path) -> Callable[..., Any]:
    """`module:function`; the module may lie beside the pipeline, or be installed."""
    module_name, colon, function_name = name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise BadInput(f"expected module:function, got {name!r}")
    folder = file.absolute().parent
    with _importable(folder):
        try:
            is_there = importlib.util.find_spec(module_name) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise BadInput(f"no module {module_name} beside the file, or installed")
        with _named(Path(f"{module_name}.py")):
            module = importlib.import_module(module_name)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise BadInput(f"module {module_name} has no function {function_name}")
    if module.__file__ is not None and Path(module.__file__).is_relative_to(folder):
        # Workers do not have it.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # PySpark's copy has no types
    return function  # type: ignore[no-any-return]  # callable, as was just seen


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules beside a pipeline are found by what is imported meanwhile."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Whatever the code of a file raises while it is loaded is told with the file's name and line."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:  # outermost edge of code that is not ours
        steps = traceback.extract_tb(error.__traceback__)
        line = next((step.lineno for step in reversed(steps) if Path(step.filename).name == file.name), None)
        where = f"{file}:{line}" if line else str(file)
        raise BadInput(f"{where}: {type(error).__name__}: {error}", field=str(file)) from error

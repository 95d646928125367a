"""The files of this repository, as a commit would hold them, and what no file of it may name."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from tests.tidy.source_rules import Module

ROOT = Path(__file__).resolve().parents[2]
# Packages are fetched by name with the ordinary clients; which host answers is the machine's own business.
# In halves, so that this file passes.
REGISTRY_HOSTS = tuple(
    b".".join(halves)
    for halves in (
        (b"pypi", b"org"),
        (b"files", b"pythonhosted"),
        (b"repo1", b"maven"),
        (b"repo", b"maven"),
        (b"proxy", b"golang"),
        (b"registry", b"npmjs"),
        (b"crates", b"io"),
        (b"deb", b"debian"),
    )
)
# Folders that exist on the machine of whoever wrote the file, and nowhere else.
MACHINE_PATHS = tuple(b"/".join((b"/work", half)) for half in (b"main", b"shared"))


@lru_cache(maxsize=1)
def repository_files() -> tuple[PurePosixPath, ...]:
    """Tracked files and new ones that are not ignored; in a copy without git, what is not hidden or made."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and (ROOT / ".git").exists():
        names: Iterable[str] = listing.stdout.decode().split("\0")
    else:
        made = {".git", ".venv", ".cache", "__pycache__", ".hypothesis"}
        found = (file.relative_to(ROOT) for file in ROOT.rglob("*"))
        names = (
            file.as_posix()
            for file in found
            if not any(part in made or part.endswith("_cache") for part in file.parts)
        )
    return tuple(PurePosixPath(name) for name in sorted(names) if name and (ROOT / name).is_file())


@lru_cache(maxsize=1)
def python_modules() -> tuple[Module, ...]:
    """Every Python file of the repository, parsed."""
    files = (path for path in repository_files() if path.suffix == ".py")
    return tuple(Module(path, (ROOT / path).read_text(encoding="utf-8")) for path in files)


def find_unwanted_names(path: PurePosixPath, content: bytes) -> Iterator[str]:
    """Registry hosts and paths of one machine."""
    lowered = content.lower()
    for name in (*REGISTRY_HOSTS, *MACHINE_PATHS):
        if name in lowered:
            line = lowered[: lowered.index(name)].count(b"\n") + 1
            yield f"{path}:{line}: names {name.decode()}"

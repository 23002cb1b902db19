"""What names the code of a metric that is not capbench's own, so that old scores are never taken for its scores."""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

__all__ = ["code_signature"]

_ENDINGS = (".py", ".pyx", ".so", ".pyd")
_MOST_FILES = 2000


def code_signature(cls: type) -> str | None:
    """``module:Class@`` and 16 digits of the SHA-256 of its source; ``""`` for capbench's own classes.

    The source is that of every module in which the class or one of its bases is written, of the packages that these
    modules are in, and of modules of the user's own that they have imported. A change in any of these files is another
    metric. What a module imports while it runs, inside a function, is not seen.

    Returns:
        None where there is no source (a class typed into an interpreter): nothing may then be cached.
    """
    foreign = [base for base in cls.__mro__ if not _is_capbench(base.__module__) and not _is_standard(base.__module__)]
    if not foreign:
        return ""
    sources: set[Path] = set()
    for base in foreign:
        module = sys.modules.get(base.__module__)
        files = None if module is None else _files_of(module)
        if not files:
            return None
        sources |= files
    digest = hashlib.sha256()
    # Names and not places, so that a folder may be moved.
    for name, content in sorted((path.name, path.read_bytes()) for path in sources):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{cls.__module__}:{cls.__qualname__}@{digest.hexdigest()[:16]}"


def _files_of(start: ModuleType) -> set[Path]:
    """Source files that a module stands on; empty if it has none of its own."""
    files: set[Path] = set()
    seen: set[str] = set()
    waiting = [start]
    while waiting and len(files) < _MOST_FILES:
        module = waiting.pop()
        path = _path(module)
        if module.__name__ in seen or path is None:
            continue
        seen.add(module.__name__)
        files.add(path)
        package = sys.modules.get(module.__name__.partition(".")[0])
        for folder in getattr(package, "__path__", ()) if package is not None else ():
            inside = (file for file in sorted(Path(folder).rglob("*")) if file.suffix in _ENDINGS)
            files.update(file for file, _ in zip(inside, range(_MOST_FILES), strict=False))
        waiting += [other for other in _imported(module) if _is_users(other)]
    return files


def _imported(module: ModuleType) -> Iterator[ModuleType]:
    """Modules that a module's names come from."""
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value
        else:
            other = sys.modules.get(getattr(value, "__module__", None) or "")
            if other is not None and other is not module:
                yield other


def _path(module: ModuleType) -> Path | None:
    path = getattr(module, "__file__", None)
    return Path(path) if path and Path(path).is_file() else None


def _is_users(module: ModuleType) -> bool:
    """Whether a module is neither capbench's nor an installed package's nor Python's."""
    path = _path(module)
    if path is None or _is_capbench(module.__name__):
        return False
    return not any(path.is_relative_to(folder) for folder in _installed())


def _installed() -> list[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(name)) for name in names] + [Path(sys.base_prefix) / "lib"]


def _is_capbench(module: str) -> bool:
    return module == "capbench" or module.startswith("capbench.")


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"

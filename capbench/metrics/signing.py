"""Signatures of user-defined code, so that the score cache distinguishes versions of it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from capbench import __version__
from capbench.core.options import Options

_ENDINGS = (".py", ".pyx", ".so", ".pyd")


def signature_line(
    name: str, cls: type, facts: Mapping[str, object], options: Options, *, recombining: bool = True
) -> str:
    """``name|capbench:version|code:…|key:value|…`` of a metric: facts, then options in the order of declaration.

    ``recombining``: False leaves out options that only recombine statistics.
    """
    fact_texts = {key: str(value) for key, value in facts.items()}
    signed = options.signature_parts(recombining=recombining)
    # A fact with an option's key describes the option's effect (the documents of cider.df) and replaces it.
    parts = {key: value for key, value in fact_texts.items() if key not in signed}
    parts |= {key: fact_texts.get(key, value) for key, value in signed.items()}
    code = code_signature(cls)
    own_code = [] if code == "" else [f"code:{code or cls.__qualname__ + '@unknown'}"]
    return "|".join([name, f"capbench:{__version__}", *own_code, *(f"{key}:{value}" for key, value in parts.items())])


@cache
def code_signature(cls: type) -> str | None:
    """``module:Class@`` and 16 digits of the SHA-256 of its source; ``""`` for capbench's classes, None without source.

    The source consists of the modules that define the class and its bases, the packages of these modules, and the
    user's modules that they import.
    """
    foreign = [base for base in cls.__mro__ if not _is_capbench(base.__module__) and not _is_standard(base.__module__)]
    if not foreign:
        return ""
    files = [_files_of(base.__module__) for base in foreign]
    return f"{cls.__module__}:{cls.__qualname__}@{_digest(set().union(*files))}" if all(files) else None


def version_signature(function: Callable[..., Any], label: str, version: str) -> str:
    """``module.name,label@version:`` with the user's version and 16 digits of the function's code."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    text = _code_text(code) if isinstance(code, CodeType) else ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{getattr(function, '__module__', None) or '?'}.{name},{label}@version:{version}+{digest}"


def _code_text(code: CodeType) -> str:
    """Everything in a code object that determines its behaviour, without file names and line numbers."""
    constants = [
        _code_text(value)
        if isinstance(value, CodeType)
        else f"{type(value).__name__} {sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)}"
        for value in code.co_consts
    ]
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return repr((code.co_name, counts, names, code.co_code, code.co_exceptiontable, constants))


def _digest(sources: set[Path]) -> str:
    digest = hashlib.sha256()
    # File names instead of paths, so that a folder may be moved.
    for name, content in sorted((path.name, path.read_bytes()) for path in sources):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _files_of(module: str) -> set[Path]:
    """Source files of a module and the user's modules that it imports; empty if it has no file."""
    files: set[Path] = set()
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        files.add(path)
        package = sys.modules.get(name.partition(".")[0])
        for folder in getattr(package, "__path__", ()):
            files.update(file for file in Path(folder).rglob("*") if file.suffix in _ENDINGS)
        waiting += [other for other in _imported(path, name) if _is_users(other)]
    return files


def _imported(path: Path, module: str) -> set[str]:
    """Names of all modules that a file imports anywhere."""
    if path.suffix != ".py":
        return set()
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.rsplit(".", node.level)[0] if node.level else ""
            source = ".".join(filter(None, (package, node.module)))
            # A name imported from a package may be a module.
            names.update({source, *(f"{source}.{alias.name}" for alias in node.names)})
    return names


def _path(module: str) -> Path | None:
    """The file of a loaded or importable module; None if there is none."""
    loaded = sys.modules.get(module)
    place = getattr(loaded, "__file__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, AttributeError, ValueError):  # no such package, or a class instead of a module
            return None
        place = None if spec is None else spec.origin
    return Path(place) if place and Path(place).is_file() else None


def _is_users(module: str) -> bool:
    """True if a module is not part of capbench, an installed package or Python."""
    if not module or _is_capbench(module) or _is_standard(module):
        return False
    path = _path(module)
    return path is not None and not _is_installed(path)


def _is_installed(path: Path) -> bool:
    """True if a file belongs to Python or an installed package, in any environment."""
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return any(path.is_relative_to(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _is_capbench(module: str) -> bool:
    return module == "capbench" or module.startswith("capbench.")


def _is_standard(module: str) -> bool:
    if module == "__main__" or module.partition(".")[0] not in sys.stdlib_module_names:
        return False
    # A user's file may have such a name.
    path = _path(module)
    return path is None or _is_installed(path)

"""Signatures of user-defined code, so that the score cache distinguishes versions of it."""

from __future__ import annotations

import ast
import builtins
import dis
import hashlib
import importlib.util
import re
import sys
import sysconfig
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from capbench import __version__
from capbench.core.options import Options

_ENDINGS = (".py", ".pyx", ".so", ".pyd")
_MOST_FILES = 2000
_MOST_VALUES = 1000
_READS_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_SETS_GLOBALS = ("STORE_GLOBAL", "DELETE_GLOBAL")
_SETS_ATTRIBUTES = ("STORE_ATTR", "DELETE_ATTR")
_COMPUTED_BUILTINS = frozenset(
    {
        "globals",
        "locals",
        "vars",
        "eval",
        "exec",
        "compile",
        "getattr",
        "setattr",
        "delattr",
        "hasattr",
        "__import__",
        "input",
    }
)
"""Functions that read or set objects by computed names."""
_COMPUTED_NAMES = frozenset(
    {
        "__dict__",
        "__globals__",
        "__builtins__",
        "__getattribute__",
        "__code__",
        "__defaults__",
        "modules",
        "_getframe",
        "currentframe",
        "import_module",
        "attrgetter",
        "methodcaller",
        "environ",
        "getenv",
    }
)
"""Other names that give code access to objects by computed names."""
_OF_EVERY_CLASS = frozenset(
    {
        "__module__",
        "__qualname__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__slots__",
        "__orig_bases__",
        "__parameters__",
        "__abstractmethods__",
        "_abc_impl",
        "__static_attributes__",
        "__firstlineno__",
    }
)


def signature_line(
    name: str, cls: type, facts: Mapping[str, object], options: Options, *, recombining: bool = True
) -> str:
    """``name|capbench:version|code:…|key:value|…`` of a metric: facts, then options in the order of declaration.

    Args:
        name: the metric's name.
        cls: its class.
        facts: everything besides options that can change a score.
        options: the metric's options.
        recombining: False leaves out options that only recombine statistics.
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
    """``module:Class@`` and 16 digits of the SHA-256 of its source; ``""`` for classes of capbench.

    The source consists of the modules that define the class and its bases, the packages of these modules, and the
    user's modules that they import. A change in any of these files gives another signature. A class is signed once in
    a process.

    Returns:
        The signature; None without source (a class typed into an interpreter), in which case nothing may be cached.
    """
    foreign = [base for base in cls.__mro__ if not _is_capbench(base.__module__) and not _is_standard(base.__module__)]
    if not foreign:
        return ""
    sources: set[Path] = set()
    for base in foreign:
        files = _files_of(base.__module__)
        if not files:
            return None
        sources |= files
    return f"{cls.__module__}:{cls.__qualname__}@{_digest(sources)}"


def function_signature(function: Callable[..., Any]) -> str | None:
    """``module.name@`` and 16 digits of the SHA-256 of everything that determines a function's values.

    The digest covers the source (as in :func:`code_signature`) and everything that the function uses when it is called:
    the actual code behind each name, plain values (numbers, texts, lists of them) of the user's modules, classes and
    functions, and versions of packages.

    Returns:
        The signature; None if these do not determine the function's values: a lambda, a nested function, a method, a
        callable object, a function of a notebook or of a file that changed since its import, or a function that uses
        an object of its module (a loaded network), sets variables that others read, or accesses objects by computed
        names (``globals()``, ``getattr``, ``os.environ``).
    """
    if not isinstance(function, FunctionType) or function.__closure__ or not function.__qualname__.isidentifier():
        return None
    module = sys.modules.get(function.__module__)
    if module is None or module.__dict__.get(function.__qualname__) is not function:
        return None
    path = _path(function.__module__)
    if path is None or path.suffix != ".py" or not _runs_as_written(module.__dict__, function.__module__, path):
        return None
    sources = _files_of(function.__module__)
    try:
        values = _Reached(function).texts()
    except (_NotSignableError, RecursionError):
        return None
    if not sources:
        return None
    return f"{function.__module__}.{function.__qualname__}@{_digest(sources, values)}"


def version_signature(function: Callable[..., Any], label: str, version: str) -> str:
    """``module.name,label@version:`` with the user's version and 16 digits of the function's code.

    The version covers everything else that the function uses.
    """
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    text = _code_text(code) if isinstance(code, CodeType) else ""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or '?'}.{name},{label}@version:{version}+{_digest(set(), [text])}"


class _NotSignableError(Exception):
    """Something that a function uses cannot be signed."""


class _Reached:
    """Everything that a function uses when it is called: the user's functions, classes and modules, and values.

    Args:
        function: the function.

    Raises:
        _NotSignableError: something that it uses cannot be signed.
    """

    def __init__(self, function: FunctionType) -> None:
        self._texts: dict[str, str] = {"capbench": __version__}
        self._names: set[str] = set()
        self._modules: dict[str, ModuleType] = {}
        self._seen: set[object] = set()
        self._take("", function)
        self._take_from_modules()

    def texts(self) -> list[str]:
        """``name=value`` of everything, sorted by name."""
        return [f"{name}={text}" for name, text in sorted(self._texts.items())]

    def _take(self, name: str, value: object, *, method: bool = False) -> None:
        text = self._text(value, method=method)
        if self._texts.setdefault(name, text) != text:
            raise _NotSignableError(name)  # two modules of the same name

    def _text(self, value: object, *, method: bool) -> str:
        if isinstance(value, FunctionType):
            return self._function(value, method=method)
        if isinstance(value, ModuleType):
            if not self._is_fixed(value.__name__):
                self._modules[value.__name__] = value
            return f"module {value.__name__}"
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, BuiltinFunctionType):
            if not isinstance(value.__self__, ModuleType | None):
                raise _NotSignableError(value)  # a method of an object
            return f"built-in {value.__module__}.{value.__qualname__}"
        text = _plain(value)
        if text is None:
            raise _NotSignableError(value)
        return text

    def _function(self, function: FunctionType, *, method: bool) -> str:
        module = str(function.__globals__.get("__name__"))
        name = f"function {module}.{function.__qualname__}"
        if self._is_fixed(module):
            return name
        if function.__closure__ or function.__globals__.get("__builtins__") not in (builtins, vars(builtins)):
            raise _NotSignableError(function)
        if function not in self._seen:
            self._seen.add(function)
            defaults: dict[object, object] = dict(enumerate(function.__defaults__ or ()))
            defaults.update(function.__kwdefaults__ or {})
            for place, default in defaults.items():
                self._take(f"{name}, default {place}", default)
            for attribute, value in vars(function).items():
                self._take(f"{name}.{attribute}", value)
            for code in _codes(function.__code__):
                self._code(code, function.__globals__, module, method=method)
        return f"{name} {_digest(set(), [_code_text(function.__code__)])}"

    def _code(self, code: CodeType, namespace: dict[str, Any], module: str, *, method: bool) -> None:
        """Take the objects that a piece of code reads by name; reject code that sets shared variables."""
        self._names.update(code.co_names)
        if _COMPUTED_NAMES & set(code.co_names):
            raise _NotSignableError(code)
        instructions = list(dis.get_instructions(code))
        for place, instruction in enumerate(instructions):
            name, does = str(instruction.argval), instruction.opname
            if does in _SETS_GLOBALS or (does in _SETS_ATTRIBUTES and not method):
                raise _NotSignableError(name)
            if does == "IMPORT_NAME":
                if instructions[place - 2].argval != 0 or name not in sys.modules:
                    raise _NotSignableError(name)  # a relative name, or a module that is not imported yet
                top = name.partition(".")[0]
                self._take(f"import {top}", sys.modules.get(top))
            elif does in _READS_GLOBALS:
                if name in namespace:
                    self._take(f"{module}.{name}", namespace[name])
                elif name not in vars(builtins):
                    if does == "LOAD_GLOBAL":
                        raise _NotSignableError(name)
                elif name in _COMPUTED_BUILTINS:
                    raise _NotSignableError(name)
                elif name not in ("NotImplemented", "Ellipsis"):
                    self._take(f"builtins.{name}", vars(builtins)[name])

    def _class(self, cls: type) -> str:
        name = f"class {cls.__module__}.{cls.__qualname__}"
        for base in cls.__mro__:
            if base in self._seen or self._is_fixed(base.__module__):
                continue
            self._seen.add(base)
            if type(base) not in (type, ABCMeta):
                raise _NotSignableError(base)
            for attribute, value in vars(base).items():
                if attribute in _OF_EVERY_CLASS or isinstance(value, MemberDescriptorType):
                    continue
                parts = [value]
                if isinstance(value, staticmethod | classmethod):
                    parts = [value.__func__]
                elif isinstance(value, property):
                    parts = [part for part in (value.fget, value.fset, value.fdel) if part is not None]
                for place, part in enumerate(parts):
                    where = f"class {base.__module__}.{base.__qualname__}.{attribute}"
                    self._take(f"{where} {type(value).__name__} {place}", part, method=True)
        return f"{name} of {', '.join(f'{base.__module__}.{base.__qualname__}' for base in cls.__mro__)}"

    def _take_from_modules(self) -> None:
        """Take values of the user's modules under all names that occur in the code: ``helpers.FACTOR``."""
        taken: set[tuple[str, str]] = set()
        while True:
            wanted = {(module, name) for module in self._modules for name in self._names} - taken
            if not wanted:
                return
            taken |= wanted
            for module, name in sorted(wanted):
                values = vars(self._modules[module])
                if "__getattr__" in values:
                    raise _NotSignableError(module)
                if name in values:
                    self._take(f"{module}.{name}", values[name])

    def _is_fixed(self, module: str) -> bool:
        """True for a module of capbench, of Python or of an installed package, whose version is added to the texts."""
        path = None if module == "__main__" else _path(module)
        if not (_is_capbench(module) or _is_standard(module) or (path is not None and _is_installed(path))):
            return False
        top = module.partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", None)
        if isinstance(version, str):
            self._texts[f"package {top}"] = version
        return True


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


def _plain(value: object) -> str | None:
    """Text of a plain value; None for other objects and for values too large to be settings."""
    if value is None or isinstance(value, bool | int | float | str | bytes | re.Pattern):
        return repr(value) if type(value).__module__ in ("builtins", "re") else None
    if isinstance(value, list | tuple | set | frozenset | dict) and type(value).__module__ == "builtins":
        if len(value) > _MOST_VALUES:
            return None
        pairs = value.items() if isinstance(value, dict) else value
        inner = [_plain(entry) for entry in pairs]
        texts = [text for text in inner if text is not None]
        if len(texts) < len(inner):
            return None
        return f"{type(value).__name__}({', '.join(sorted(texts) if isinstance(value, set | frozenset) else texts)})"
    return None


def _digest(sources: set[Path], values: Sequence[str] = ()) -> str:
    digest = hashlib.sha256()
    for text in values:
        digest.update(f"{text}\0".encode())
    # File names instead of paths, so that a folder may be moved.
    for name, content in sorted((path.name, path.read_bytes()) for path in sources):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _runs_as_written(namespace: dict[str, Any], module: str, path: Path) -> bool:
    """True if a module's functions equal those in its file, which may have changed since the import."""
    here = [
        value.__code__
        for value in namespace.values()
        if isinstance(value, FunctionType) and value.__module__ == module and not value.__closure__
    ]
    if any(Path(code.co_filename).name != path.name for code in here):
        return False  # typed into an interpreter that runs a file
    try:
        written = set(_codes(compile(path.read_bytes(), here[0].co_filename, "exec", dont_inherit=True)))
    except (SyntaxError, ValueError):
        return False
    return all(code in written for code in here)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _files_of(module: str) -> set[Path]:
    """Source files of a module and the user's modules that it imports; empty if it has no file."""
    files: set[Path] = set()
    seen: set[str] = set()
    waiting = [module]
    while waiting and len(files) < _MOST_FILES:
        name = waiting.pop()
        path = _path(name)
        if name in seen or path is None:
            continue
        seen.add(name)
        files.add(path)
        package = sys.modules.get(name.partition(".")[0])
        for folder in getattr(package, "__path__", ()):
            inside = (file for file in sorted(Path(folder).rglob("*")) if file.suffix in _ENDINGS)
            files.update(file for file, _ in zip(inside, range(_MOST_FILES), strict=False))
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

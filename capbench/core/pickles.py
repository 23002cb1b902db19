"""Safe reader for untrusted pickles, ``.npy`` and ``.npz`` files.

A pickle is a program: ``pickle.load`` calls any function that it names. This reader allows only NumPy arrays, scalars
and dtypes, Python's built-in containers and values, ``collections.OrderedDict`` and (on request)
``argparse.Namespace``, each through a substitute that checks its arguments; any other name is rejected before an object
is created. The opcodes are scanned first: hashing a tuple with a million levels overflows the C stack, and a memo index
of 2^32 allocates 64 GB.
"""

from __future__ import annotations

import argparse
import collections
import io
import os
import pickle
import pickletools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capbench.core import files
from capbench.core.errors import CapbenchError, DataError, MissingFileError, suggest

MAX_DEPTH = 64


class RefusedError(Exception):
    """A forbidden operation of a pickle."""


_OPCODES = {opcode.code.encode("latin-1")[0]: opcode for opcode in pickletools.opcodes}
_FORBIDDEN = frozenset({"PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"})
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_CONTAINERS = frozenset({"TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "BUILD", "APPEND", "SETITEM", "NEWOBJ", "NEWOBJ_EX"})
_MARK = -1


def scan(data: bytes, begin: int = 0, *, persistent: bool = False) -> int:
    """Check the opcodes without executing them: depths of values, memo indices, forbidden opcodes.

    Args:
        data: bytes that contain a pickle.
        begin: position of the pickle.
        persistent: True allows references to values outside the pickle (``BINPERSID``).

    Returns:
        The position after the pickle.

    Raises:
        RefusedError: a limit is exceeded, or the pickle is truncated.
    """
    stack: list[int] = []  # depth of each value, or _MARK
    memo: dict[int, int] = {}
    position, length = begin, len(data)
    while True:
        if position >= length:
            raise RefusedError("it is truncated")
        opcode = _OPCODES.get(data[position])
        if opcode is None:
            raise RefusedError(f"byte {position} is not an opcode")
        position += 1
        argument, position = _argument(data, position, opcode)
        name = opcode.name
        if name in _FORBIDDEN and not (persistent and name == "BINPERSID"):
            raise RefusedError(f"it uses the opcode {name}")
        if name == "STOP":
            return position
        depth = _step(name, opcode, argument, stack, memo)
        if depth > MAX_DEPTH:
            raise RefusedError(f"it is nested deeper than {MAX_DEPTH} levels")


def _argument(data: bytes, position: int, opcode: pickletools.OpcodeInfo) -> tuple[int, int]:
    """The opcode's argument if it is a memo index (else 0), and the position after it."""
    if opcode.arg is None:
        return 0, position
    size = opcode.arg.n
    if size >= 0:
        raw = data[position : position + size]
        return (int.from_bytes(raw, "little") if opcode.name in _PUTS | _GETS else 0), position + size
    if size == pickletools.UP_TO_NEWLINE:
        lines = 2 if opcode.name in ("GLOBAL", "INST") else 1
        begin = position
        for _ in range(lines):
            end = data.find(b"\n", position)
            if end < 0:
                raise RefusedError("it is truncated")
            position = end + 1
        if opcode.name in _PUTS | _GETS:
            text = data[begin:end].strip()
            if not text.isdigit() or len(text) > 12:
                raise RefusedError("a memo index is not a number")
            return int(text), position
        return 0, position
    width = _LENGTH_BYTES[size]
    count = int.from_bytes(data[position : position + width], "little")
    return 0, position + width + count


def _step(name: str, opcode: pickletools.OpcodeInfo, argument: int, stack: list[int], memo: dict[int, int]) -> int:
    """Apply the opcode to depths instead of values, and return the depth of the new top value."""
    if name == "MARK":
        stack.append(_MARK)
        return 0
    if name in _PUTS or name == "MEMOIZE":
        index = len(memo) if name == "MEMOIZE" else argument
        # Picklers number the memo in order from 0 or 1; gaps result only from optimised pickles.
        if index > 4 * len(memo) + 1024:
            raise RefusedError(f"its memo index {index} is far too large")
        memo[index] = _top(stack)
        return 0
    if name in _GETS:
        if argument not in memo:
            raise RefusedError(f"it reads the memo entry {argument}, which does not exist")
        stack.append(memo[argument])
        return stack[-1]
    before, after = list(opcode.stack_before), list(opcode.stack_after)
    taken: list[int] = []
    if pickletools.markobject in before:
        below = before.index(pickletools.markobject)
        while stack and stack[-1] != _MARK:
            taken.append(stack.pop())
        if not stack:
            raise RefusedError("a mark is missing")
        stack.pop()
        taken += [_pop(stack) for _ in range(below)]
    elif name == "POP" and stack and stack[-1] == _MARK:
        stack.pop()
        return 0
    else:
        taken = [_pop(stack) for _ in before]
    if name == "DUP":
        stack += [taken[0], taken[0]]
        return taken[0]
    grows = bool(taken) and (name in _CONTAINERS or pickletools.markobject in before)
    depth = max(taken, default=0) + int(grows)
    stack.extend(depth for _ in after)
    return depth


def _top(stack: list[int]) -> int:
    if not stack or stack[-1] == _MARK:
        raise RefusedError("it takes a value from an empty stack")
    return stack[-1]


def _pop(stack: list[int]) -> int:
    depth = _top(stack)
    stack.pop()
    return depth


NAMESPACE = "argparse.Namespace"
"""Value for ``allowed`` that allows ``argparse.Namespace``, in which training scripts store their options."""

_MAX_BYTES = 16 << 30
_MIN_UNPACKED_LIMIT, _MAX_RATIO = 64_000_000, 20  # an .npz may unpack to the larger of these bytes and this ratio
_MAX_ITEM_BYTES = 1 << 20  # one fixed-width element of an array
_OPTIONAL = (NAMESPACE,)
_UNTRUSTED = "Do not trust the source of this file"
_KINDS = frozenset("?bBhHiIlLqQefdgFDGSUO")


class Outside:
    """Placeholder for a value outside the pickle while the pickle is read."""

    __slots__ = ()

    def value(self) -> Any:
        """The value itself."""
        raise NotImplementedError

    def __setstate__(self, _state: Any) -> None:
        raise RefusedError("it changes a value that is stored outside it")


@dataclass(frozen=True)
class Extension:
    """Further names of a file format's pickles, and values that it stores outside them.

    Attributes:
        names: full name → function that checks its arguments, or immutable value.
        outside: returns the value with a persistent id.
    """

    names: Mapping[str, object]
    outside: Callable[[Any], Outside]


def load_pickle(
    source: str | os.PathLike[str] | bytes,
    *,
    allowed: Collection[str] = (),
    name: str | None = None,
    max_bytes: int = _MAX_BYTES,
    extension: Extension | None = None,
) -> Any:
    """Read one pickled value (protocols 0 to 5; strings of Python 2 as Latin-1).

    Args:
        source: a file, or the pickle's bytes.
        allowed: further classes, of :data:`NAMESPACE`.
        name: its name in error messages; default: the file's path.
        max_bytes: maximum size.
        extension: further names, and values outside the pickle; without it, persistent ids are rejected.

    Raises:
        DataError: it names a class or function that is not allowed, is damaged, has more than 64 levels, or is
            too large; file and class are named.
        MissingFileError: there is no such file.
    """
    unknown = [entry for entry in allowed if entry not in _OPTIONAL]
    if unknown:
        raise ValueError(f"no such optional class: {unknown[0]}. {suggest(unknown[0], [*_OPTIONAL])}")
    if isinstance(source, bytes):
        place, data = name or "pickle", source
    else:
        place, data = name or os.fspath(source), _read(source, max_bytes)
    if len(data) > max_bytes:
        raise DataError(f"is larger than {max_bytes:,} bytes", code="too-large", path=place)
    try:
        scan(data, persistent=extension is not None)
        value = _Unpickler(data, place, frozenset(allowed), extension).load()
        return _plain(value)
    except CapbenchError:
        raise
    except RefusedError as error:
        raise DataError(f"is not a safe pickle: {error}", code="unsafe", path=place, hint=_UNTRUSTED) from None
    except MemoryError:
        message = "is not a safe pickle: it requires more memory than there is"
        raise DataError(message, code="unsafe", path=place) from None
    except Exception as error:  # damage can make any opcode fail
        message = f"is not a readable pickle ({type(error).__name__}: {error})"
        raise DataError(message, code="damaged", path=place, hint="Download the file again") from error


def load_npy(source: str | os.PathLike[str] | bytes, *, name: str | None = None) -> Any:
    """Read a ``.npy`` file; arrays of objects (a pickle) through :func:`load_pickle`.

    Returns:
        The array; for an array of shape ``()`` with an object, the object.

    Raises:
        DataError: it is not a ``.npy`` file, is truncated, or contains a pickle that is not safe.
    """
    place = name or ("array" if isinstance(source, bytes) else os.fspath(source))
    data = source if isinstance(source, bytes) else _read(source, _MAX_BYTES)
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream, max_header_size=100_000)
        start = stream.tell()
        if not dtype.hasobject:
            count = int(np.prod(shape, dtype=object)) if shape else 1
            if dtype.itemsize * count != len(data) - start:
                raise DataError(
                    f"has {len(data) - start:,} bytes instead of {dtype.itemsize * count:,} for its shape {shape}",
                    code="damaged",
                    path=place,
                    hint="The file is truncated or damaged: download it again",
                )
            array = np.frombuffer(data, dtype=dtype, offset=start, count=count).copy()
            return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    except CapbenchError:
        raise
    except Exception as error:
        message = f"is not a .npy file ({error})"
        raise DataError(message, code="wrong-format", path=place, hint="Download the file again") from error
    value = load_pickle(data[start:], name=place)
    if isinstance(value, np.ndarray) and value.shape != shape:
        message = f"contains an array of shape {value.shape}, but its header has the shape {shape}"
        raise DataError(message, code="wrong-shape", path=place)
    return value.item() if isinstance(value, np.ndarray) and value.shape == () else value


def load_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read all numeric arrays of an ``.npz`` file by name (see :func:`load_npy`).

    The unpacked size is checked in its directory before unpacking: numbers hardly compress.

    Raises:
        DataError: it is not an ``.npz`` file, unpacks to much more than its size, or one of its arrays cannot be read
            or contains objects; the array is named.
        MissingFileError: there is no such file.
    """
    import zipfile

    files.check_readable(path)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            total = sum(member.file_size for member in archive.infolist())
            if total > max(_MIN_UNPACKED_LIMIT, _MAX_RATIO * Path(path).stat().st_size):
                message = f"unpacks to {total:,} bytes"
                raise DataError(message, code="too-large", path=path, hint="Download the file again")
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                value = load_npy(archive.read(member), name=f"{os.fspath(path)}[{key}]")
                if not isinstance(value, np.ndarray) or value.dtype.hasobject:
                    place = f"{os.fspath(path)}[{key}]"
                    raise DataError("contains objects instead of numbers", code="wrong-type", path=place)
                arrays[key] = value
    except CapbenchError:
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # zipfile, zlib and lzma each have their own exceptions
        message = f"is not an .npz file ({str(error)[:200]})"
        raise DataError(message, code="wrong-format", path=path, hint="Download the file again") from error
    return arrays


def _read(path: str | os.PathLike[str], limit: int) -> bytes:
    files.check_readable(path)
    try:
        size = Path(path).stat().st_size
        if size > limit:
            raise DataError(f"is larger than {limit:,} bytes", code="too-large", path=path)
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str | os.PathLike[str], error: OSError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", path=path)
    message = f"cannot be read ({error.strerror or error})"
    return DataError(message, code="unreadable", path=path, hint="Check its permissions")


# Substitutes for the allowed names.


class _Guard:
    """A callable that a pickle may call but not change: opcodes can set attributes of the objects that they name."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any] | None) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        if self._function is None:
            raise RefusedError("it calls numpy.ndarray directly, which could allocate any amount of memory")
        return self._function(*arguments)

    def __setstate__(self, _state: Any) -> None:
        raise RefusedError("it changes a class or a function")


class _Array(np.ndarray[Any, Any]):
    """An array under construction; checks its state before passing it to NumPy."""

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) not in (4, 5):
            raise RefusedError("an array has a state of unknown form")
        shape, dtype, fortran, data = state[-4:]
        true = _true_dtype(dtype)
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
            raise RefusedError("an array has no shape")
        if np.prod(shape, dtype=object) > max(len(data), 1):
            raise RefusedError("an array's shape is larger than its data")
        if true.hasobject != isinstance(data, list) or not isinstance(data, list | bytes | str):
            raise RefusedError("an array's data do not match its dtype")
        super().__setstate__((1, shape, true, bool(fortran), data))  # type: ignore[arg-type]


class _Dtype:
    """A dtype under construction; only simple ones without fields and metadata."""

    def __init__(self, text: Any, *_: Any) -> None:
        if not isinstance(text, str):
            raise RefusedError("a dtype has no name")
        true = np.dtype(text)
        if true.names or true.subdtype or true.char not in _KINDS or true.itemsize > _MAX_ITEM_BYTES:
            raise RefusedError(f"the dtype {text!r} is not simple")
        self.true: np.dtype[Any] = true

    def __setstate__(self, state: Any) -> None:
        simple = isinstance(state, tuple) and len(state) >= 5 and state[2:5] == (None, None, None)
        if not simple or state[1] not in ("<", ">", "|", "="):
            raise RefusedError("a dtype has fields or a state of unknown form")
        if state[1] in "<>":
            self.true = self.true.newbyteorder(state[1])


def _true_dtype(value: Any) -> np.dtype[Any]:
    if not isinstance(value, _Dtype):
        raise RefusedError("an array's dtype is not a dtype")
    return value.true


def _reconstruct(subtype: Any, shape: Any, _typecode: Any) -> _Array:
    if subtype is not _NDARRAY or shape != (0,):
        raise RefusedError("an array is constructed in an unknown way")
    return np.empty(0, np.int8).view(_Array)


def _scalar(dtype: Any, data: Any = None) -> Any:
    true = _true_dtype(dtype)
    raw = data.encode("latin-1") if isinstance(data, str) else data
    if true.hasobject or not isinstance(raw, bytes) or len(raw) != true.itemsize:
        raise RefusedError("a NumPy scalar's data do not match its dtype")
    return np.frombuffer(raw, dtype=true)[0]


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> np.ndarray[Any, Any]:
    true = _true_dtype(dtype)
    if true.hasobject or not isinstance(buffer, bytes | bytearray) or order not in ("C", "F"):
        raise RefusedError("an array's data do not match its dtype")
    return np.frombuffer(bytes(buffer), dtype=true).reshape(shape, order=order).copy()


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    # Python 3 writes bytes in this form in protocols that Python 2 reads.
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise RefusedError("bytes are encoded in an unknown way")
    return text.encode("latin-1")


def _bytes(*arguments: Any) -> bytes:
    if arguments:
        raise RefusedError("bytes are encoded in an unknown way")
    return b""


_NDARRAY = _Guard(None)
_KNOWN: dict[str, _Guard] = {
    "numpy.ndarray": _NDARRAY,
    "numpy.dtype": _Guard(_Dtype),
    "_codecs.encode": _Guard(_encode),
    "builtins.bytes": _Guard(_bytes),
    "builtins.set": _Guard(set),
    "builtins.frozenset": _Guard(frozenset),
    "builtins.complex": _Guard(complex),
    "collections.OrderedDict": _Guard(collections.OrderedDict),
    **{
        f"numpy.{core}.{function}": _Guard(stand_in)
        for core in ("core", "_core")
        for function, stand_in in (
            ("multiarray._reconstruct", _reconstruct),
            ("multiarray.scalar", _scalar),
            ("numeric._frombuffer", _frombuffer),
        )
    },
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, place: str, allowed: frozenset[str], extension: Extension | None) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._place, self._extension = place, extension
        further = extension.names if extension else {}
        self._further = {name: _Guard(value) if callable(value) else value for name, value in further.items()}
        # A separate class for each pickle, so that a pickle cannot affect others.
        self._optional = {NAMESPACE: type("Namespace", (argparse.Namespace,), {})} if NAMESPACE in allowed else {}

    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # its name in Python 2
        full = f"{module}.{name}"
        if full in self._optional:
            return self._optional[full]
        if full in _KNOWN:
            return _KNOWN[full]
        if full in self._further:
            return self._further[full]
        hint = f"Only readers that allow {full} accept it" if full in _OPTIONAL else _UNTRUSTED
        message = f"the pickle contains '{full}', which is not allowed"
        raise DataError(message, code="unsafe", value=full, path=self._place, hint=hint)

    def persistent_load(self, pid: Any) -> Any:
        if self._extension is None:
            raise RefusedError("it refers to a value outside it")
        return self._extension.outside(pid)


# Replacement of the substitutes by plain values.


def _plain(value: Any) -> Any:
    """Replace substitutes by the real values, in place if a container allows it."""
    return _Finisher().plain(value)


class _Finisher:
    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Any]] = {}  # the first of the pair keeps the id alive

    def plain(self, value: Any) -> Any:
        change = self._changer(value)
        if change is None:
            return value
        known = self._done.get(id(value))
        if known is not None:
            return known[1]
        if isinstance(value, dict | list):
            self._done[id(value)] = (value, value)  # before its entries: a container may contain itself
        result = change(value)
        self._done[id(value)] = (value, result)
        return result

    def _changer(self, value: Any) -> Callable[[Any], Any] | None:
        if isinstance(value, _Dtype):
            return lambda x: x.true
        if isinstance(value, Outside):
            return lambda x: x.value()
        if isinstance(value, np.ndarray):
            return self._array
        if isinstance(value, dict):
            return self._dict
        if isinstance(value, list):
            return self._list
        if isinstance(value, tuple):
            return lambda x: tuple(self.plain(entry) for entry in x)
        if isinstance(value, argparse.Namespace):
            return self._namespace
        if isinstance(value, set | frozenset):
            return self._set
        if isinstance(value, _Guard | type):
            raise RefusedError("it contains a class or a function")
        return None

    def _array(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        plain = np.array(array, subok=False) if isinstance(array, _Array) else array
        if plain.dtype.hasobject:
            flat = plain.reshape(-1)
            for i, entry in enumerate(flat.tolist()):
                flat[i] = self.plain(entry)
        return plain

    def _dict(self, entries: dict[Any, Any]) -> dict[Any, Any]:
        for key in entries:
            entries[key] = self.plain(entries[key])
        return entries

    def _list(self, entries: list[Any]) -> list[Any]:
        entries[:] = [self.plain(entry) for entry in entries]
        return entries

    def _set(self, entries: Collection[Any]) -> Collection[Any]:
        return type(entries)(self.plain(entry) for entry in entries)  # type: ignore[call-arg]

    def _namespace(self, namespace: argparse.Namespace) -> argparse.Namespace:
        return argparse.Namespace(**self._dict(vars(namespace)))

"""Safe reader for PyTorch files, without ``torch.load``, which small damaged or malicious files can crash.

Both formats are pickles with the tensors' numbers outside them: a zip archive (since PyTorch 1.6), or several
pickles followed by the numbers. :mod:`capbench.core.pickles` reads the pickles. This module creates the tensors, after
checking their shapes against the stored numbers.
"""

from __future__ import annotations

import collections
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from capbench.core.errors import ModelError
from capbench.core.pickles import NAMESPACE, Extension, Outside, RefusedError, load_pickle, scan

LEGACY_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""The pickled magic number at the start of files of PyTorch before 1.6."""

_MAX_PICKLED = 256 << 20  # bytes of a file's pickles: names, shapes and options, without the tensors' numbers
_MAX_AXES = 64
_MAX_NUMBERS = 1 << 48  # with strides of 0, one stored number is enough for a tensor of any size
_BLOCK = 16 << 20
_AGAIN = "Download the file again"
_TRUNCATED = "The file is truncated or damaged: download it again"

_STORAGES = {
    "Double": torch.float64, "Float": torch.float32, "Half": torch.float16, "BFloat16": torch.bfloat16,
    "Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8, "Byte": torch.uint8,
    "Bool": torch.bool, "ComplexDouble": torch.complex128, "ComplexFloat": torch.complex64,
}  # fmt: skip
_NEWER = ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_DTYPES = {*_STORAGES.values(), *(kind for name in _NEWER if (kind := getattr(torch, name, None)) is not None)}
_NOT_DENSE = ("torch._utils._rebuild_sparse_tensor", "torch._utils._rebuild_meta_tensor_no_storage")


def load_torch(file: Path) -> Any:
    """Read all of a PyTorch file of either format, onto the CPU.

    It may contain lists, dictionaries, numbers, strings, tensors, NumPy arrays and scalars and ``argparse.Namespace``.
    Tensors that share their numbers in the file also share them in memory. A tensor that is sparse, conjugated or
    without numbers becomes an empty one on the device ``meta``.

    Raises:
        DataError: it contains another class, or its pickle is damaged.
        ModelError: it is not a PyTorch file, or is damaged.
        OSError, zipfile.BadZipFile: it cannot be read.
    """
    with open(file, "rb") as stream:
        if stream.read(4) == b"PK\x03\x04":
            return _load_zip(stream, file)
        stream.seek(0)
        return _load_legacy(stream, file)


def _load_zip(stream: BinaryIO, file: Path) -> Any:
    size = file.stat().st_size
    with zipfile.ZipFile(stream) as archive:
        members = {member.filename: member for member in archive.infolist()}
        pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
        if any(name.endswith("/constants.pkl") for name in members):
            raise ModelError(
                "is a TorchScript archive, which is a program and is not executed",
                code="unsafe",
                path=file,
                hint="Provide the weights as a state dict or as safetensors",
            )
        if len(pickles) != 1 or len(members) != len(archive.infolist()):
            message = "is not a PyTorch file: its archive does not contain exactly one data.pkl"
            raise ModelError(message, code="wrong-format", path=file, hint=_AGAIN)
        root = pickles[0].removesuffix("data.pkl")
        # PyTorch does not compress: larger unpacked members or overlapping ones come from another program.
        packed = any(member.compress_type != zipfile.ZIP_STORED for member in members.values())
        if packed or sum(member.file_size for member in members.values()) > size:
            message = "is not a PyTorch file: its archive is compressed"
            raise ModelError(message, code="wrong-format", path=file, hint=_AGAIN)
        if f"{root}byteorder" in members and archive.read(f"{root}byteorder") != b"little":
            raise _big_endian(file)

        def fetch(storage: _Storage) -> torch.Tensor:
            member = members.get(f"{root}data/{storage.key}")
            if member is None or member.file_size != storage.n_bytes:
                raise _damaged(file, storage.key, "truncated")
            with archive.open(member) as numbers:
                return _numbers(numbers, storage, file)

        if members[pickles[0]].file_size > _MAX_PICKLED:
            message = f"its pickle is larger than {_MAX_PICKLED:,} bytes"
            raise ModelError(message, code="too-large", path=file, hint=_AGAIN)
        return _Reader(fetch).load(archive.read(pickles[0]), file)


def _load_legacy(stream: BinaryIO, file: Path) -> Any:
    head = stream.read(_MAX_PICKLED)
    pickles: list[bytes] = []  # magic number, version, the machine's sizes, the content, keys of storages
    begin = 0
    if LEGACY_MAGIC not in head[:64]:
        raise ModelError("is not a PyTorch file", code="wrong-format", path=file, hint=_AGAIN)
    for _ in range(5):
        try:
            end = scan(head, begin, persistent=True)
        except RefusedError as error:
            raise ModelError(f"is not a safe pickle: {error}", code="unsafe", path=file, hint=_TRUNCATED) from None
        pickles.append(head[begin:end])
        begin = end
    machine = load_pickle(pickles[2], name=str(file))
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise _big_endian(file)
    keys = load_pickle(pickles[4], name=str(file))
    size = file.stat().st_size
    places: dict[str, int] = {}

    def find() -> None:
        # The file has the count of each storage's numbers; the content has the bytes per number.
        position = begin
        for key in keys if isinstance(keys, list) else ():
            storage = reader.storages.get(key) if isinstance(key, str) else None
            stream.seek(position)
            count = stream.read(8)
            if storage is None or key in places or int.from_bytes(count, "little") != storage.count:
                raise _damaged(file, str(key), "damaged")
            places[key] = position + 8
            position += 8 + storage.n_bytes
            if position > size:
                raise _damaged(file, key, "truncated")

    def fetch(storage: _Storage) -> torch.Tensor:
        if not places:
            find()
        if storage.key not in places:
            raise _damaged(file, storage.key, "missing")
        stream.seek(places[storage.key])
        return _numbers(stream, storage, file)

    reader = _Reader(fetch)
    return reader.load(pickles[3], file)


def _damaged(file: Path, key: str, state: str) -> ModelError:
    message = f"the numbers of storage '{key[:40]}' are {state}"
    return ModelError(message, code="damaged", value=key[:40], path=file, hint=_TRUNCATED)


def _big_endian(file: Path) -> ModelError:
    message = "was not written on a little-endian machine"
    return ModelError(message, code="unsupported", path=file, hint="Save it again as safetensors")


def _numbers(stream: Any, storage: _Storage, file: Path) -> torch.Tensor:
    """A storage's bytes from the current position of a stream."""
    array = np.empty(storage.n_bytes, np.uint8)
    for begin in range(0, len(array), _BLOCK):
        block = array[begin : begin + _BLOCK].data
        while len(block):
            count = stream.readinto(block)
            if not count:
                raise _damaged(file, storage.key, "truncated")
            block = block[count:]
    if storage.dtype == torch.bool:
        np.minimum(array, 1, out=array)  # the behaviour of other bytes as booleans is undefined
    return torch.from_numpy(array)


@dataclass(frozen=True)
class _Storage:
    """Numbers that several tensors may share."""

    key: str
    dtype: torch.dtype
    count: int

    @property
    def n_bytes(self) -> int:
        return self.count * self.dtype.itemsize


class _StorageName(Outside):
    """Placeholder for a storage in the pickle."""

    __slots__ = ("begin", "storage")

    def __init__(self, storage: _Storage, begin: int) -> None:
        self.storage, self.begin = storage, begin

    def value(self) -> Any:
        raise RefusedError("it contains a storage without a tensor")


class _TensorName(Outside):
    """Placeholder for a tensor in the pickle."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        self._make = make

    def value(self) -> Any:
        return self._make()


class _Reader:
    """Reads the pickle of one file.

    Attributes:
        storages: storages in the pickle, by key.
    """

    def __init__(self, fetch: Callable[[_Storage], torch.Tensor]) -> None:
        self.storages: dict[str, _Storage] = {}
        self._fetch = fetch
        self._fetched: dict[str, torch.Tensor] = {}

    def load(self, data: bytes, file: Path) -> Any:
        names: dict[str, object] = {
            "collections.Counter": collections.Counter,
            "torch.Size": _size,
            "torch.device": _device,
            "torch.serialization._get_layout": _layout,
            "torch.storage.UntypedStorage": torch.uint8,
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._tensor_v3,
            "torch._utils._rebuild_parameter": _first,
            "torch._utils._rebuild_parameter_with_state": _first,
            "torch._tensor._rebuild_from_type_v2": _with_attributes,
            "torch.Tensor": _not_called,
            "torch.nn.parameter.Parameter": _not_called,
        }
        for name, dtype in _STORAGES.items():
            names |= {f"torch.{name}Storage": dtype, f"torch.cuda.{name}Storage": dtype}
        names |= {str(dtype): dtype for dtype in _DTYPES}
        names |= dict.fromkeys(_NOT_DENSE, _not_dense)
        extension = Extension(names, self._storage)
        return load_pickle(data, allowed=[NAMESPACE], name=str(file), extension=extension)

    def _storage(self, name: Any) -> _StorageName:
        if not isinstance(name, tuple) or len(name) not in (5, 6) or name[0] != "storage":
            raise RefusedError("it refers to an outside value that is not a storage")
        _, dtype, key, _, count = name[:5]
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str) or not _counts(count):
            raise RefusedError("it names a storage in an unknown way")
        storage = self.storages.setdefault(key, _Storage(key, dtype, count))
        if storage != _Storage(key, dtype, count):
            raise RefusedError(f"it names the storage '{key[:40]}' in two ways")
        view = name[5] if len(name) == 6 else None  # PyTorch before 0.4: a storage that begins inside another
        if view is None:
            return _StorageName(storage, 0)
        if not isinstance(view, tuple) or len(view) != 3 or not _counts(view[1]):
            raise RefusedError("it names a storage in an unknown way")
        return _StorageName(storage, view[1])

    def _tensor(self, storage: Any, begin: Any, shape: Any, strides: Any, *rest: Any) -> _TensorName:
        if not isinstance(storage, _StorageName):
            raise RefusedError("a tensor has no storage")
        if len(rest) > 2 and rest[2]:
            return _not_dense()  # conjugated or negated: its numbers differ from the stored ones
        return self._view(storage, storage.storage.dtype, begin, shape, strides)

    def _tensor_v3(self, storage: Any, begin: Any, shape: Any, strides: Any, *rest: Any) -> _TensorName:
        if not isinstance(storage, _StorageName) or len(rest) < 3 or rest[2] not in _DTYPES:
            raise RefusedError("a tensor has no storage or no known type")
        if len(rest) > 3 and rest[3]:
            return _not_dense()
        return self._view(storage, rest[2], begin, shape, strides)

    def _view(self, name: _StorageName, dtype: torch.dtype, begin: Any, shape: Any, strides: Any) -> _TensorName:
        sound = isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) == len(strides) <= _MAX_AXES
        if not sound or not all(map(_counts, (begin, *shape, *strides))):
            raise RefusedError("a tensor has a shape of unknown form")
        if math.prod(max(n, 1) for n in shape) > _MAX_NUMBERS:
            raise RefusedError("a tensor is larger than any memory")
        begin += name.begin
        last = begin + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        stored = name.storage.n_bytes // dtype.itemsize
        if 0 not in shape and last >= stored:
            raise RefusedError("a tensor is larger than its storage")

        def make() -> torch.Tensor:
            if 0 in shape:
                return torch.empty(shape, dtype=dtype)
            key = name.storage.key
            if key not in self._fetched:
                self._fetched[key] = self._fetch(name.storage)
            return self._fetched[key][: stored * dtype.itemsize].view(dtype).as_strided(shape, strides, begin)

        return _TensorName(make)


def _counts(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBERS


def _first(data: Any, *_: Any) -> Any:
    if not isinstance(data, _TensorName):
        raise RefusedError("a parameter is not a tensor")
    return data


def _with_attributes(function: Any, _class: Any, arguments: Any, _state: Any) -> Any:
    if not isinstance(arguments, tuple):
        raise RefusedError("a tensor is constructed in an unknown way")
    return _first(function(*arguments))


def _size(*arguments: Any) -> tuple[int, ...]:
    if len(arguments) != 1 or not isinstance(arguments[0], tuple) or not all(map(_counts, arguments[0])):
        raise RefusedError("a shape has an unknown form")
    return arguments[0]


def _device(*arguments: Any) -> str:
    if not arguments or not isinstance(arguments[0], str):
        raise RefusedError("a device has no name")
    return ":".join(map(str, arguments[:2]))


def _layout(name: Any) -> str:
    return str(name)


def _not_called(*_: Any) -> Any:
    raise RefusedError("it constructs a tensor in an unknown way")


def _not_dense(*_: Any) -> _TensorName:
    return _TensorName(lambda: torch.empty(0, device="meta"))

"""Arrays that others published (pickles, ``.npy``, ``.npz``), read without running code in them.

Pickles go through the restricted unpickler of Python's documentation (docs.python.org/3/library/pickle.html,
"Restricting Globals"), which creates NumPy arrays and Python's containers only.
"""

from __future__ import annotations

import io
import os
import pickle
from types import SimpleNamespace
from typing import IO, Any

import numpy as np

from capbench.core import files
from capbench.core.errors import DataError

_AGAIN = "Download the file again"
_CORES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((core, name) for core in _CORES for name in ("_reconstruct", "scalar", "_frombuffer")),
    *((home, name) for home in ("builtins", "__builtin__") for name in ("bytes", "set", "frozenset", "complex")),
    ("_codecs", "encode"),
    *(("collections", name) for name in ("OrderedDict", "defaultdict")),
    ("builtins", "int"),
}


def not_allowed(name: str, path: str | os.PathLike[str]) -> DataError:
    """The error for a file that contains a class or function other than arrays and containers."""
    hint = "It could run code: do not trust the source of this file"
    return DataError(f"contains '{name}', which is not allowed", code="unsafe", value=name, path=path, hint=hint)


class _Restricted(pickle.Unpickler):
    place, records = "", ""

    def find_class(self, module: str, name: str) -> Any:
        if self.records and module.startswith(self.records):
            return SimpleNamespace
        if (module, name) not in _ALLOWED:
            raise not_allowed(f"{module}.{name}", self.place)
        return super().find_class(module, name)


def load_pickle(source: str | os.PathLike[str] | bytes, *, name: str | None = None, records: str = "") -> Any:
    """Read one pickled value (protocols 0 to 5; strings of Python 2 as Latin-1).

    Objects of classes whose module begins with ``records`` become plain namespaces.
    """
    place = name or ("pickle" if isinstance(source, bytes) else os.fspath(source))
    return _unpickled(io.BytesIO(source if isinstance(source, bytes) else files.read_bytes(source)), place, records)


def _unpickled(stream: IO[bytes], place: str, records: str = "") -> Any:
    unpickler = _Restricted(stream, encoding="latin1")
    unpickler.place, unpickler.records = place, records
    try:
        return unpickler.load()
    except DataError:
        raise
    except Exception as error:  # damage can make any opcode fail
        message = f"is not a readable pickle ({error})"
        raise DataError(message, code="damaged", path=place, hint=_AGAIN) from error


def load_npy(source: str | os.PathLike[str] | bytes, *, name: str | None = None) -> Any:
    """Read a ``.npy`` file; arrays of objects (a pickle) through :func:`load_pickle`.

    Returns the array; for an array of shape ``()`` with an object, the object.
    """
    place = name or ("array" if isinstance(source, bytes) else os.fspath(source))
    data = source if isinstance(source, bytes) else files.read_bytes(source)
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read(stream, max_header_size=100_000)
        if not dtype.hasobject:
            stream.seek(0)
            return np.load(stream, allow_pickle=False)
    except Exception as error:
        message = f"is not a .npy file ({error})"
        raise DataError(message, code="wrong-format", path=place, hint=_AGAIN) from error
    value = _unpickled(stream, place)
    return value.item() if isinstance(value, np.ndarray) and value.shape == () else value


def load_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read all arrays of numbers in an ``.npz`` file by name."""
    files.check_readable(path)
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile, zlib and lzma each have their own exceptions
        message = f"is not an .npz file of numbers ({str(error)[:200]})"
        raise DataError(message, code="wrong-format", path=path, hint=_AGAIN) from error

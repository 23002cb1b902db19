"""PyTorch files, read by ``torch.load`` without running code in them."""

from __future__ import annotations

import argparse
import collections
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capbench.core.errors import ModelError
from capbench.core.pickles import not_allowed

LEGACY_MAGIC = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
"""The pickled magic number at the start of files of PyTorch before 1.6."""

_MULTIARRAY = getattr(np, "_core", None) or np.core
# The names by which NumPy 1 and 2 pickle an array; a number is pickled with the class of its dtype.
_ALLOWED: list[Any] = [
    argparse.Namespace,
    collections.Counter,
    np.ndarray,
    np.dtype,
    *((function, f"{core}.multiarray.{function.__name__}")
      for core in ("numpy.core", "numpy._core")
      for function in (_MULTIARRAY.multiarray._reconstruct, _MULTIARRAY.multiarray.scalar)),
    *(type(np.dtype(code)) for code in "?bBhHiIlLqQefdFD"),
]  # fmt: skip


def load_torch(file: Path) -> Any:
    """Read all of a PyTorch file of either format, onto the CPU."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if damaged := archive.testzip():  # PyTorch reads changed numbers without a word
                    raise ValueError(f"{damaged} differs from its checksum")
        with torch.serialization.safe_globals(_ALLOWED):
            # The unpickler of weights_only=True, which takes no encoding: Python 2 pickled numbers as bytes.
            unpickler = torch._weights_only_unpickler
            return torch.load(file, "cpu", pickle_module=unpickler, weights_only=False, encoding="latin1")
    except Exception as error:  # pickle, zip and torch raise many kinds on a damaged file
        reason = " ".join(str(error).split())
        if refused := re.search(r"GLOBAL (\S+) (?:was not an allowed|whose module)", reason):
            raise not_allowed(refused[1], file) from error
        reason = reason.partition("WeightsUnpickler error: ")[2][:200] or reason[:200]
        message = f"is not a PyTorch file of tensors, numbers and text ({reason})"
        raise ModelError(message, code="damaged", path=file, hint="Download the file again") from error

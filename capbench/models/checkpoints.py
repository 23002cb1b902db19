"""Reading weights that others made, without running anything that they contain.

Known are PyTorch files (read with ``weights_only=True``), pickled dictionaries of arrays as Detectron and detectron2
write them (read with the restricted unpickler), ``.npz`` and safetensors, told apart by content and not by name, and
``.caffemodel``. Whatever the container, the result is one flat dictionary from a tensor's name to the tensor.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from capbench.errors import DataError, MissingFileError, ModelError
from capbench.files import check_readable, sha256_file
from capbench.models.arrays import is_safetensors, read_safetensors, refuse_other_kinds, unreadable
from capbench.safe_pickle import load_npz, load_pickle

__all__ = [
    "Checkpoint",
    "blocks_of",
    "fit_state",
    "fitting_tensors",
    "read_checkpoint",
    "read_torch",
    "shape_of",
    "tensors_of",
    "width_of",
]

# Where the tensors lie in a file that holds more than tensors, in the order of trial.
_INSIDE = ("model", "state_dict", "model_state_dict", "weights", "blobs")
_PREFIXES = ("module.", "_orig_mod.")
_COUNTER = "num_batches_tracked"


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one file.

    Attributes:
        path: the file.
        sha256: of the whole file, 64 hex digits.
        tensors: by name; half precision is widened to float32.
    """

    path: Path
    sha256: str
    tensors: dict[str, torch.Tensor]


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a file of weights.

    Args:
        path: a PyTorch file (``.pth``, ``.pt``, ``.bin``), a pickle of arrays (``.pkl``), ``.npz``,
            ``.safetensors`` or ``.caffemodel``.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is none of these, is damaged, asks for classes that are refused, or holds no tensors.
    """
    file = Path(path)
    digest = sha256_file(file)  # also says what is wrong with a missing or unreadable file
    with open(file, "rb") as stream:
        head = stream.read(64)
    refuse_other_kinds(head, file)
    try:
        if head[:4] == b"PK\x03\x04":
            with zipfile.ZipFile(file) as archive:
                arrays = all(name.endswith(".npy") for name in archive.namelist())
            content: Any = load_npz(file) if arrays else _read_torch(file)
        elif is_safetensors(head, file.stat().st_size):
            content = read_safetensors(file)
        elif b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in head:  # the magic number of PyTorch before 1.6
            content = _read_torch(file)
        elif file.suffix == ".caffemodel":
            from capbench.models.caffe import read_caffemodel

            content = read_caffemodel(file)
        else:
            content = load_pickle(file)
    except MissingFileError:
        raise
    except DataError as error:
        raise ModelError(error.message, path=file, hint=error.hint or "Get the file again") from error
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # zip, torch and NumPy raise many kinds on a damaged file
        raise unreadable(file, error) from error
    return Checkpoint(file, digest, tensors_of(content, file))


def read_torch(path: str | os.PathLike[str]) -> Any:
    """Read all of a PyTorch file, of either format, with ``weights_only=True``: what a training script saved.

    Lists, dictionaries, numbers, texts, tensors, NumPy arrays and ``argparse.Namespace`` may be in it.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no such file, is damaged, or asks for other classes.
    """
    file = Path(path)
    check_readable(file)
    try:
        with open(file, "rb") as stream:
            head = stream.read(64)
        refuse_other_kinds(head, file)
        return _read_torch(file)
    except FileNotFoundError as error:
        raise MissingFileError("there is no such file", path=file) from error
    except (ModelError, MemoryError):
        raise
    except Exception as error:
        raise unreadable(file, error) from error


def _read_torch(file: Path) -> Any:
    import argparse
    import pickle

    # Training scripts keep step counts and options as NumPy scalars and Namespaces beside the tensors; both are inert.
    core: Any = np._core.multiarray if hasattr(np, "_core") else np.core.multiarray  # type: ignore[attr-defined]
    inert = [argparse.Namespace, np.ndarray, np.dtype, core._reconstruct, core.scalar]
    inert += [(core.scalar, "numpy.core.multiarray.scalar"), (core._reconstruct, "numpy.core.multiarray._reconstruct")]
    inert += [type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8", "u1", "?")]
    # Before 2.6 PyTorch took no other names for what may pass; files with such extras are then refused.
    passing = torch.serialization.safe_globals(inert) if _torch_version() >= (2, 6) else contextlib.nullcontext()
    with passing:
        try:
            try:
                return torch.load(file, map_location="cpu", weights_only=True)
            except UnicodeDecodeError:  # Python 2 wrote bytes; a path among the options need not be UTF-8
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # says that it takes no encoding, and takes it
                    return torch.load(file, map_location="cpu", weights_only=True, encoding="latin1")
        except RuntimeError as error:
            if "TorchScript" not in str(error):
                raise
            raise ModelError(
                "is a TorchScript archive, which is a program and is not run",
                path=file,
                hint="Give the weights as a state dict or as safetensors",
            ) from error
        except pickle.UnpicklingError as error:
            named = re.search(r"GLOBAL ([\w.]+)", str(error))
            problem = f"asks for '{named.group(1)}', which is refused" if named else "is no state dict and is refused"
            raise ModelError(
                f"the file {problem}", path=file, hint="Save only the state dict, or do not trust where it came from"
            ) from error


def _torch_version() -> tuple[int, ...]:
    return tuple(int(number) for number in torch.__version__.split("+")[0].split(".")[:2])


def tensors_of(content: Any, file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a state dict, of one inside a training checkpoint, or of a dictionary of arrays.

    Prefixes that wrappers add are taken off, half and double precision become float32.

    Raises:
        ModelError: there are none, or one holds NaN or infinity.
    """
    for key in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
            break
    if not isinstance(content, Mapping):
        raise ModelError(f"holds a {type(content).__name__} and no dictionary of tensors", path=file)
    result: dict[str, torch.Tensor] = {}
    for key, value in content.items():
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            # ascontiguousarray makes a vector of a scalar.
            native = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("="), copy=False)).reshape(value.shape)
            value = torch.from_numpy(native)
        if not isinstance(key, str) or not isinstance(value, torch.Tensor):
            continue  # epochs, options, names of classes
        if value.is_meta or value.is_complex() or value.is_quantized or value.layout != torch.strided:
            raise ModelError(f"'{key}' holds no plain numbers", path=file, hint="Save it as a dense tensor of floats")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            # A kilobyte can ask for a terabyte: one number that stands for all of them.
            raise ModelError(f"'{key}' is larger than its data", path=file, hint="Do not trust where it came from")
        name = key
        while name.startswith(_PREFIXES):  # a wrapper may be wrapped
            name = name.partition(".")[2]
        if name in result:
            raise ModelError(f"two tensors stand for '{name}', one of them '{key}'", path=file)
        result[name] = value.float() if value.dtype in (torch.float16, torch.bfloat16, torch.float64) else value
    if not result:
        raise ModelError("holds no tensors", path=file, hint="Give the file of the model's weights")
    for name, tensor in result.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"'{name}' holds NaN or infinity", path=file, hint="The file is damaged: get it again")
    return result


def shape_of(
    tensors: Mapping[str, torch.Tensor], name: str, axes: int, path: str | os.PathLike[str], hint: str
) -> torch.Size:
    """The shape of a tensor that a network's sizes are read off.

    Args:
        tensors: by the network's names.
        name: which one.
        axes: how many axes it must have, none of them empty.
        path: the file, for messages.
        hint: which weights are wanted, for messages.

    Raises:
        ModelError: it is missing, or has other axes.
    """
    if name not in tensors:
        raise ModelError(f"lacks '{name}'", path=path, hint=hint)
    shape = tensors[name].shape
    if len(shape) != axes or 0 in shape:
        needed = f"{axes} axes" if axes > 1 else "one axis"
        raise ModelError(f"'{name}' has shape {tuple(shape)}, the network needs {needed} of 1 or more", path=path)
    return shape


def width_of(
    tensors: Mapping[str, torch.Tensor], name: str, path: str | os.PathLike[str], hint: str, multiple: int = 1
) -> int:
    """A width that is read off a bias or a normalisation, so that a matrix which does not fit it is found to be wrong.

    Args:
        tensors: by the network's names.
        name: of a vector.
        path: the file, for messages.
        hint: which weights are wanted, for messages.
        multiple: what the vector holds for each unit of the width.

    Raises:
        ModelError: it is missing, no vector, or no multiple.
    """
    size = shape_of(tensors, name, 1, path, hint)[0]
    if size % multiple:
        raise ModelError(f"'{name}' has shape ({size},), the network needs a multiple of {multiple}", path=path)
    return size // multiple


def blocks_of(tensors: Mapping[str, torch.Tensor], stage: str, path: str | os.PathLike[str], hint: str) -> int:
    """How many blocks a stage of a ResNet has. Raises ModelError if it has none, or one between them is missing."""
    pattern = re.compile(rf"{re.escape(stage)}\.(\d+)\.")
    numbers = {int(match[1]) for name in tensors if (match := pattern.match(name))}
    count = len(numbers)
    if not numbers or numbers != set(range(count)):
        first = min(set(range(count + 1)) - numbers)
        raise ModelError(f"lacks '{stage}.{first}.conv1.weight'", path=path, hint=hint)
    return count


def fit_state(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    rename: Callable[[str], str | None] = lambda name: name,
    optional: Collection[str] = (),
    assign: bool = False,
) -> None:
    """Put tensors into a network: those of :func:`fitting_tensors`, which also says what is wrong with others.

    Arguments and errors are its own; the network is changed in place and set to evaluation mode. With ``assign`` it
    takes the tensors themselves and not copies of them, so that a network of meta tensors gets mapped ones.
    """
    fitting = fitting_tensors(module, tensors, path, rename=rename, optional=optional)
    module.load_state_dict(fitting, strict=False, assign=assign)
    module.eval()


def fitting_tensors(
    module: nn.Module,
    tensors: Mapping[str, torch.Tensor],
    path: str | os.PathLike[str],
    *,
    rename: Callable[[str], str | None] = lambda name: name,
    optional: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    """Tensors by a network's names; every parameter must be given, with its own shape, and nothing may be left over.

    Args:
        module: the network; only names and shapes of its parameters are looked at.
        tensors: by the file's names.
        path: the file, for messages.
        rename: the network's name for a file's name, or None for a tensor that inference does not need.
        optional: endings of names that may be missing, beside ``num_batches_tracked``, which inference never reads.

    Raises:
        ModelError: something is missing, left over or of another shape; the first of each is named.
    """
    state = module.state_dict()
    fitting: dict[str, torch.Tensor] = {}
    left_over: list[str] = []
    for name, tensor in tensors.items():
        parameter = rename(name)
        if parameter is None:
            continue
        if parameter not in state:
            left_over.append(name)
            continue
        if parameter in fitting:
            raise ModelError(f"two tensors stand for '{parameter}', one of them '{name}'", path=path)
        if tuple(state[parameter].shape) != tuple(tensor.shape):
            if parameter.endswith(_COUNTER):
                continue  # NumPy makes a vector of it
            raise ModelError(
                f"'{name}' has shape {tuple(tensor.shape)}, the network needs {tuple(state[parameter].shape)}",
                path=path,
                hint="These weights are of another architecture",
            )
        fitting[parameter] = tensor
    endings = (*optional, _COUNTER)
    missing = [name for name in state if name not in fitting and not name.endswith(endings)]
    for names, what in ((missing, "lacks"), (left_over, "holds what the network does not know:")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            hint = "These weights are of another architecture"
            raise ModelError(f"{what} '{names[0]}'{more}", path=path, hint=hint)
    return fitting

"""Trained networks as files of capbench's own: one ``.safetensors`` with options, vocabulary and facts of the training.

What a network of one kind adds to it stands in its own folder (``metrics/grounding/scan_files.py``,
``metrics/faier/files.py``): a :class:`Family`, a subclass of :class:`TrainedModel`, and functions that read and write
it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from capbench.core.errors import CapbenchError, ModelError, UsageError
from capbench.core.files import atomic_write, check_readable, sha256_file
from capbench.core.options import Options
from capbench.text.vocabulary import Vocabulary, tokenizer_version
from capbench.weights.arrays import LONGEST_HEADER, read_metadata
from capbench.weights.checkpoints import fitting_tensors, read_checkpoint
from capbench.weights.ensembles import read_ensemble

__all__ = [
    "Family",
    "Stored",
    "TrainedModel",
    "TrainedWeights",
    "check_size",
    "load_trained",
    "map_safetensors",
    "read_metadata",
    "read_trained",
    "refuse_ensemble",
    "to_bytes",
    "trained_on",
    "with_weights",
    "write_safetensors",
    "write_trained",
]


# Writing safetensors files: a JSON header with free text beside the tensors, then the numbers; nothing can run.

_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.int64: "I64"}


def to_bytes(
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Literal["float32", "float16"] = "float32",
) -> bytes:
    """A file of tensors by name, in the order of names: the same content gives the same bytes.

    Args:
        tensors: floating point (stored in ``precision``) or int64.
        metadata: texts by name.
        precision: of floating point numbers in the file.

    Raises:
        ModelError: a tensor holds NaN or infinity, or ``precision`` cannot hold it.
    """
    return b"".join(_pieces(tensors, metadata, precision))


def _pieces(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], precision: Literal["float32", "float16"]
) -> Iterator[bytes]:
    """The header, and tensor by tensor what follows, so that a large file is never in memory twice."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        dtype = getattr(torch, precision) if tensor.is_floating_point() else tensor.dtype
        end = at + tensor.numel() * dtype.itemsize
        header[name] = {"dtype": _TYPES[dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    yield _head(header)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.to(getattr(torch, precision))
            if not bool(torch.isfinite(tensor).all()):
                raise ModelError(f"'{name}' holds NaN or infinity in {precision}", hint="Nothing is written")
        yield tensor.contiguous().numpy().tobytes()


def _head(header: Mapping[str, object]) -> bytes:
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
    precision: Literal["float32", "float16"] = "float32",
) -> None:
    """Write what :func:`to_bytes` gives, atomically.

    Raises:
        ModelError: see :func:`to_bytes`.
    """
    try:
        with atomic_write(path, "wb") as stream:
            for piece in _pieces(tensors, metadata, precision):
                stream.write(piece)
    except ModelError as error:
        raise ModelError(error.message, path=path, hint=error.hint) from error


def map_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The float32 tensors of a file by name, mapped into memory: what is never read is never loaded.

    Processes that map one file share its memory. Changing a tensor changes this process's copy and not the file.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is no safetensors file, is cut off, or holds other numbers than float32.
    """
    file = Path(path)
    check_readable(file)
    damaged = ModelError("is no whole safetensors file", path=file, hint="Get or make the file again")
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if 2 <= length <= LONGEST_HEADER else b""
    try:
        header = json.loads(text)
        places = {name: entry for name, entry in header.items() if name != "__metadata__"}
        size = file.stat().st_size - 8 - length
        ends = [tuple(entry["data_offsets"]) for entry in places.values()]
        if not places or not all(0 <= begin <= end <= size for begin, end in ends):
            raise damaged
        whole = np.memmap(file, np.uint8, "c", offset=8 + length)
        tensors = {}
        for name, entry in places.items():
            if entry["dtype"] != "F32":
                raise ModelError(f"'{name}' is of the type {entry['dtype']} and not F32", path=file)
            begin, end = entry["data_offsets"]
            tensors[name] = torch.from_numpy(whole[begin:end].view(np.float32).reshape(entry["shape"]))
    except ModelError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise damaged from error
    return tensors


O = TypeVar("O", bound=Options)  # noqa: E741
N = TypeVar("N", bound=nn.Module)
T = TypeVar("T", bound="TrainedModel[Any, Any]")


class TrainedWeights(Generic[O]):
    """What is known of any trained network that was read from a file.

    Attributes:
        network: in evaluation mode; it says its ``options``.
        sha256: of the weights' file, 64 hex digits.
        path: that file.
        training: facts of the training, as stored (JSON values).
    """

    network: nn.Module
    sha256: str
    path: Path
    training: Mapping[str, Any]

    @property
    def options(self) -> O:
        """The network's shape, and what else it was made with."""
        return cast(O, self.network.options)

    @property
    def features(self) -> str | None:
        """Id of the fingerprint of the features it was trained on (sixteen hex digits), or None if unknown."""
        return trained_on(self.training)

    @property
    def trained_on_kind(self) -> str:
        """What networks of an ensemble must have in common of their training, in words."""
        return f"was trained on features of the kind {self.features or 'unknown'}"


@dataclass(frozen=True, eq=False)
class TrainedModel(TrainedWeights[O], Generic[N, O]):
    """A trained network with its vocabulary.

    Attributes:
        network: in evaluation mode; it says its ``options``, with ``image_dim`` among them.
        vocabulary: as many words as the network has.
        sha256: of the weights' file, 64 hex digits.
        path: that file.
        training: facts of the training, as stored (JSON values).
        device: where the network runs.
    """

    network: N = field(repr=False)
    vocabulary: Vocabulary = field(repr=False)
    sha256: str
    path: Path
    training: Mapping[str, Any] = field(repr=False)
    device: str = "cpu"

    @property
    def shared(self) -> tuple[str, ...]:
        """What networks of an ensemble must have in common; vocabularies and sizes may differ."""
        reads = f"reads features of {self.network.options.image_dim} columns"  # type: ignore[union-attr]
        return (*self.alike, reads, self.trained_on_kind)

    @property
    def alike(self) -> tuple[str, ...]:
        """What :attr:`shared` says of networks of this kind alone: what they are, first."""
        raise NotImplementedError

    def signature_parts(self) -> dict[str, str]:
        """Everything of the model that can change a score, for a metric's signature."""
        raise NotImplementedError

    def summary(self) -> dict[str, object]:
        """What is told of it in lists."""
        raise NotImplementedError

    @property
    def words_signature(self) -> str:
        """Its vocabulary, and how captions become words, for :meth:`signature_parts`."""
        return f"{self.vocabulary.sha256[:16]}+{tokenizer_version()}"


@dataclass(frozen=True)
class Family:
    """A kind of network as its files and messages name it.

    Attributes:
        kind: what a file says that it holds, with the form's version: ``capbench.scan/1``.
        name: of the kind (``SCAN``).
        noun: what one is (``FAIEr model``).
        command: that makes one.
    """

    kind: str
    name: str
    noun: str
    command: str


@dataclass(frozen=True)
class Stored(Generic[O]):
    """What a file holds.

    Attributes:
        tensors: weights by name.
        options: of the network.
        vocabulary: as many words as the network has.
        training: facts of the training, JSON values; ``features`` is the fingerprint id of the features.
    """

    tensors: dict[str, Tensor]
    options: O
    vocabulary: Vocabulary
    training: dict[str, Any]


def write_trained(
    path: str | os.PathLike[str],
    kind: str,
    network: nn.Module,
    options: Options,
    vocabulary: Vocabulary,
    training: Mapping[str, Any],
    precision: Literal["float32", "float16"] = "float32",
) -> None:
    """Write one self-contained file, atomically.

    Args:
        path: the file.
        kind: of network, with the form's version: ``capbench.scan/1``.
        network: its weights.
        options: of the network; a field ``vocabulary_size`` among them.
        vocabulary: as many words as the network has.
        training: facts worth keeping, JSON values.
        precision: ``float16`` halves the file; reading widens it to float32 again.

    Raises:
        ModelError: the vocabulary is of another size, or a weight is no number.
    """
    facts = dataclasses.asdict(options)
    check_size(vocabulary, facts["vocabulary_size"], path)
    metadata = {
        "format": "pt",
        "kind": kind,
        "options": json.dumps(facts),
        "vocabulary": json.dumps(vocabulary.words, ensure_ascii=False),
        "training": json.dumps(dict(training), ensure_ascii=False, sort_keys=True),
    }
    write_safetensors(path, network.state_dict(), metadata, precision)


def read_trained(path: Path, kind: str, name: str, command: str, option_type: type[O]) -> Stored[O] | None:
    """Read such a file.

    Args:
        path: the file.
        kind: of network, as it was written.
        name: of the kind, for messages (``SCAN``).
        command: that makes one, for messages.
        option_type: the class of its options.

    Returns:
        What it holds; None if it is no safetensors file.

    Raises:
        ModelError: it holds something else, is damaged, or options and vocabulary do not fit each other.
    """
    metadata = read_metadata(path)
    if metadata is None:
        return None
    if metadata.get("kind") != kind:
        raise ModelError(f"is no {name} model of capbench", path=path, hint=f"Make one with '{command}'")
    try:
        options = option_type(**json.loads(metadata["options"]))
        vocabulary = Vocabulary(tuple(json.loads(metadata["vocabulary"])))
        training = dict(json.loads(metadata["training"]))
    except UsageError as error:  # an option that the network refuses
        raise ModelError(error.message, path=path, hint=error.hint) from error
    except CapbenchError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"its metadata cannot be read ({error})", path=path, hint="Get the file again") from error
    return Stored(read_checkpoint(path).tensors, options, vocabulary, training)


def load_trained(
    path: str | os.PathLike[str],
    family: Family,
    option_type: type[O],
    network_type: Callable[[O], nn.Module],
    model_type: type[T],
    device: str = "cpu",
) -> T:
    """Load a model that :func:`write_trained` wrote.

    Args:
        path: the file.
        family: of the network.
        option_type: the class of its options.
        network_type: makes a network of them; its weights do not matter.
        model_type: what is given back.
        device: ``cpu`` or ``cuda``.

    Raises:
        MissingFileError: there is no such file.
        ModelError: it is of another family, is an ensemble, is damaged, or its parts do not fit one another.
    """
    file = Path(path)
    digest = sha256_file(file)
    refuse_ensemble(file)
    stored = read_trained(file, family.kind, family.name, family.command, option_type)
    if stored is None:
        raise ModelError(f"is no {family.noun} of capbench", path=file, hint=f"Make one with '{family.command}'")
    check_size(stored.vocabulary, getattr(stored.options, "vocabulary_size"), file)  # noqa: B009  # of all options here
    network = with_weights(lambda: network_type(stored.options), stored.tensors, file)
    return model_type(network.to(device), stored.vocabulary, digest, file, stored.training, device)


def with_weights(make: Callable[[], N], tensors: Mapping[str, torch.Tensor], path: Path) -> N:
    """A network with a file's weights, in evaluation mode; its gradients are not asked for.

    Args:
        make: makes it; its weights do not matter.
        tensors: the file's.
        path: the file, for messages.

    Raises:
        ModelError: sizes and weights do not fit each other.
    """
    with torch.device("meta"):  # sizes that do not fit are found before memory is asked for
        try:
            network = make()
        except RuntimeError as error:  # a size is more than can be counted
            raise ModelError("its sizes are larger than any network's", path=path, hint="Get the file again") from error
        weights = fitting_tensors(network, tensors, path)
    network.to_empty(device="cpu").load_state_dict(weights)
    network.eval().requires_grad_(False)
    return network


def refuse_ensemble(path: Path) -> None:
    """Raise ModelError if a file is an ensemble where one network is asked for."""
    ensemble = read_ensemble(path)
    if ensemble is not None:
        raise ModelError(
            f"is an ensemble of {len(ensemble.parts)} networks, and this needs a single one",
            path=path,
            hint=f"Give one of them, such as {ensemble.parts[0].path}",
        )


def check_size(vocabulary: Vocabulary, size: int, path: str | os.PathLike[str]) -> None:
    """Raise ModelError unless a vocabulary has as many words as the weights are for."""
    if len(vocabulary) != size:
        raise ModelError(
            f"the vocabulary has {len(vocabulary)} words but the weights are for {size}",
            path=path,
            hint="Give the vocabulary that the model was trained with",
        )


def trained_on(training: Mapping[str, Any]) -> str | None:
    """Id of the fingerprint of the features that a network was trained on (sixteen hex digits); None if unknown."""
    kind = training.get("features")
    return kind if isinstance(kind, str) else None

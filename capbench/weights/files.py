"""capbench's file format for trained networks: a ``.safetensors`` file with options, vocabulary and training facts.

The folder of each kind of network adds its part (``metrics/scan/files.py``, ``metrics/faier/network.py``), a
subclass of :class:`TrainedModel`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from capbench.core.errors import ModelError, UsageError
from capbench.core.files import atomic_write, sha256_file
from capbench.core.options import Options
from capbench.text.vocabulary import Vocabulary, tokenizer_version
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import fitting_tensors, read_checkpoint, shapes_only
from capbench.weights.encodings import Encodings
from capbench.weights.ensembles import read_ensemble

# Safetensors files: a JSON header with metadata, then the numbers; no code.

_TYPES = {torch.float32: "F32", torch.int64: "I64"}


def _pieces(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> Iterator[bytes]:
    """The header and the tensors one by one, so that a large file is never in memory twice."""
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
        end = at + tensor.numel() * dtype.itemsize
        header[name] = {"dtype": _TYPES[dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.float()
            if not bool(torch.isfinite(tensor).all()):
                message = f"'{name}' contains NaN or infinity"
                raise ModelError(message, code="not-a-number", value=name, path=path, hint="No file was written")
        yield tensor.contiguous().numpy().tobytes()


def write_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str],
) -> None:
    """Write floating point (stored as float32) or int64 tensors atomically, sorted by name."""
    with atomic_write(path, "wb") as stream:
        stream.writelines(_pieces(path, tensors, metadata))


O = TypeVar("O", bound=Options)  # noqa: E741
N = TypeVar("N", bound=nn.Module)


class Stored(NamedTuple):
    """The content of a file."""

    tensors: dict[str, Tensor]  # weights by name
    options: Any  # options of the network
    vocabulary: Any  # its words or word pieces
    training: dict[str, Any]  # facts of the training, JSON values; ``features`` is the fingerprint id of the features


@dataclass(frozen=True, eq=False)
class TrainedModel(Generic[N, O]):
    """A trained network with its vocabulary."""

    title: ClassVar[str]  # of the kind of network, in messages, and in lower case in signatures and commands: ``SCAN``
    network_type: ClassVar[Any]  # a module made of options, with ``kind``: the format in its files, ``capbench.scan/1``
    option_type: ClassVar[type[Options]]
    trainer: ClassVar[str] = ""  # name for ``capbench train``, if it is not the title
    # key of the words in files, and their type
    words: ClassVar[tuple[str, Callable[[tuple[str, ...]], Any]]] = ("vocabulary", Vocabulary)

    network: N = field(repr=False)  # in evaluation mode, with an attribute ``options`` that has ``image_dim``
    vocabulary: Any = field(repr=False)  # its words or word pieces, one for each of the network's
    sha256: str  # SHA-256 of the weight file, 64 hex digits
    path: Path  # the weight file
    training: Mapping[str, Any] = field(repr=False)  # facts of the training, as stored (JSON values)
    device: str = "cpu"  # device of the network
    encodings: Encodings = field(default_factory=Encodings, repr=False)  # of captions by their word numbers

    @property
    def options(self) -> O:
        """The network's options, including its sizes."""
        return cast(O, self.network.options)

    @property
    def features(self) -> str | None:
        """Fingerprint id of the training features (sixteen hex digits), or None if unknown."""
        kind = self.training.get("features")
        return kind if isinstance(kind, str) else None

    @property
    def trained_on_kind(self) -> str:
        """Predicate about the training that networks of an ensemble must share."""
        return f"was trained on features of the kind {self.features or 'unknown'}"

    @property
    def shared(self) -> tuple[str, ...]:
        """Predicates that networks of an ensemble must share; vocabularies and sizes may differ."""
        reads = f"reads features of {self.network.options.image_dim} columns"  # type: ignore[union-attr]
        return (f"is a {self.title} network", reads, self.trained_on_kind)

    def signature_parts(self) -> dict[str, str]:
        """All properties of the model that can change a score, for a metric's signature."""
        words = f"{self.vocabulary.sha256[:16]}+{tokenizer_version()}"
        return {"model": f"{self.title.lower()}-{self.sha256[:16]}", "vocabulary": words}

    def summary(self) -> dict[str, object]:
        """Properties for listings."""
        size = self.network.options.embed_dim  # type: ignore[union-attr]
        return {"words": len(self.vocabulary), "embed_dim": size, "features": self.features}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        device: str = "cpu",
        released: Callable[[Path], Stored] | None = None,  # reads a file that is not a safetensors file
    ) -> Self:
        """Load a model from a file of :func:`write_trained`."""
        file = Path(path)
        digest = sha256_file(file)
        if ensemble := read_ensemble(file):
            number, hint = len(ensemble.parts), f"Pass one of them, such as {ensemble.parts[0].path}"
            message = f"is an ensemble of {number} networks, and this needs a single one"
            raise ModelError(message, code="unsupported", value=number, path=path, hint=hint)
        stored = cls.stored(file) or (released(file) if released is not None else None)
        if stored is None:
            raise cls._other_kind(None, file)
        check_size(stored.vocabulary, stored.options.vocabulary_size, file)
        network = with_weights(lambda: cls.network_type(stored.options), stored.tensors, file)
        return cls(network.to(device), stored.vocabulary, digest, file, stored.training, device)

    @classmethod
    def stored(cls, path: Path) -> Stored | None:
        """Read a file of :func:`write_trained`; None if it is not a safetensors file."""
        metadata = read_metadata(path)
        if metadata is None:
            return None
        if metadata.get("kind") != cls.network_type.kind:
            raise cls._other_kind(metadata.get("kind"), path)
        try:
            options = cls.option_type.stored(json.loads(metadata["options"]))
            key, words = cls.words
            vocabulary = words(tuple(json.loads(metadata[key])))
            training = dict(json.loads(metadata["training"]))
        except UsageError as error:  # an option that the network rejects
            raise error.placed(ModelError, path) from error
        except (KeyError, TypeError, ValueError) as error:
            message = f"its metadata cannot be read ({error})"
            raise ModelError(message, code="damaged", path=path, hint="Download the file again") from error
        return Stored(read_checkpoint(path).tensors, options, vocabulary, training)

    @classmethod
    def _other_kind(cls, kind: str | None, path: Path) -> ModelError:
        message = f"is not a {cls.title} network of capbench"
        hint = f"Create one with 'capbench train {cls.trainer or cls.title.lower()}'"
        return ModelError(message, code="wrong-weights", value=kind, path=path, hint=hint)


def write_trained(
    path: str | os.PathLike[str],
    network: Any,  # with its ``options``, and ``kind``, which has the version of the format: ``capbench.scan/1``
    vocabulary: Vocabulary,
    training: Mapping[str, Any],  # facts of the training, JSON values
) -> None:
    """Write one self-contained file, atomically."""
    facts = dataclasses.asdict(network.options)
    check_size(vocabulary, facts["vocabulary_size"], path)
    metadata = {
        "format": "pt",
        "kind": network.kind,
        "options": json.dumps(facts),
        "vocabulary": json.dumps(vocabulary.words, ensure_ascii=False),
        "training": json.dumps(dict(training), ensure_ascii=False, sort_keys=True),
    }
    write_safetensors(path, network.state_dict(), metadata)


def with_weights(make: Callable[[], N], tensors: Mapping[str, torch.Tensor], path: Path) -> N:
    """A network with a file's weights, in evaluation mode and without gradients."""
    with shapes_only():  # detects wrong sizes before memory is allocated
        network = make()
        weights = fitting_tensors(network, tensors, path)
    network.to_empty(device="cpu").load_state_dict(weights)
    network.eval().requires_grad_(False)
    return network


def check_size(vocabulary: Sized, size: int, path: str | os.PathLike[str]) -> None:
    """Raise ModelError if a vocabulary has another size than the weights."""
    if len(vocabulary) != size:
        message = f"the vocabulary has {len(vocabulary)} words but the weights are for {size}"
        hint = "Pass the vocabulary with which the model was trained"
        raise ModelError(message, code="mismatch", value=len(vocabulary), path=path, hint=hint)

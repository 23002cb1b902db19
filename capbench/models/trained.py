"""Trained networks as files of capbench's own: one ``.safetensors`` with options, vocabulary and facts of the training.

What a network of one kind adds to it stands in its own folder (``models/scan/files.py``, ``models/faier/files.py``).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from torch import Tensor, nn

from capbench.errors import CapbenchError, ModelError, UsageError
from capbench.models.checkpoints import read_checkpoint
from capbench.models.ensembles import read_ensemble
from capbench.models.safetensors import read_metadata, write_safetensors
from capbench.options import Options
from capbench.text.vocabulary import Vocabulary

__all__ = ["Stored", "check_size", "read_trained", "refuse_ensemble", "trained_on", "write_trained"]

O = TypeVar("O", bound=Options)  # noqa: E741


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

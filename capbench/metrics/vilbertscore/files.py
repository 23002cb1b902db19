"""Weight files of ViLBERT in capbench's format and the released one, and loaded models with their word pieces.

capbench's format is one ``.safetensors`` with sizes, word pieces and training facts in its metadata. A released file is
converted when it is first loaded, into the cache folder under its SHA-256; later loads map the converted weights into
memory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from capbench.core.errors import CapbenchError, DataError, MissingFileError, ModelError, UsageError
from capbench.core.files import cache_dir, lock, read_json, sha256_file
from capbench.metrics.vilbertscore.network import Vilbert, VilbertOptions
from capbench.text.word_pieces import WordPieces, read_word_pieces, tokenizer_version
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import fit_state, read_checkpoint, shape_of, tensors_of
from capbench.weights.ensembles import read_ensemble
from capbench.weights.files import TrainedWeights, map_safetensors, write_safetensors

# Released checkpoints of ViLBERT: state dicts with other names.
#
# Supported are ``pretrained_model.bin`` (533 tensors; Lu et al., NeurIPS 2019) and ``multi_task_model.bin`` (560; Lu et
# al., CVPR 2020). The names of their tensors are those of the released code (facebookresearch/vilbert-multi-task).

_HINT = "Use pretrained_model.bin or multi_task_model.bin of ViLBERT, or a model from 'capbench train vilbert'"
_AGAIN = "Download the file again"

_SELF = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "attended.linear",
    "attention.output.LayerNorm": "attended.norm",
    "intermediate.dense": "feed.inner",
    "output.dense": "feed.outer.linear",
    "output.LayerNorm": "feed.outer.norm",
}
# In the released code 1 is the image and 2 the text.
_CONNECTION = {
    **{f"biattention.{part}1": f"image_{part}" for part in ("query", "key", "value")},
    **{f"biattention.{part}2": f"text_{part}" for part in ("query", "key", "value")},
    "biOutput.dense1": "image_attended.linear",
    "biOutput.LayerNorm1": "image_attended.norm",
    "biOutput.dense2": "text_attended.linear",
    "biOutput.LayerNorm2": "text_attended.norm",
    "v_intermediate.dense": "image_feed.inner",
    "v_output.dense": "image_feed.outer.linear",
    "v_output.LayerNorm": "image_feed.outer.norm",
    "t_intermediate.dense": "text_feed.inner",
    "t_output.dense": "text_feed.outer.linear",
    "t_output.LayerNorm": "text_feed.outer.norm",
}
_WHOLE = {
    "embeddings.word_embeddings": "text_embedding.words",
    "embeddings.position_embeddings": "text_embedding.positions",
    "embeddings.token_type_embeddings": "text_embedding.types",
    "embeddings.task_embeddings": "text_embedding.tasks",
    "embeddings.LayerNorm": "text_embedding.norm",
    "v_embeddings.image_embeddings": "image_embedding.features",
    "v_embeddings.image_location_embeddings": "image_embedding.places",
    "v_embeddings.LayerNorm": "image_embedding.norm",
    "t_pooler.dense": "text_pooler",
    "v_pooler.dense": "image_pooler",
}
_RELEASED_HEADS = {
    "cls.predictions": "heads.word",
    "cls.predictions.transform.dense": "heads.word_transform.linear",
    "cls.predictions.transform.LayerNorm": "heads.word_transform.norm",
    "cls.imagePredictions.transform.dense": "heads.region_transform.linear",
    "cls.imagePredictions.transform.LayerNorm": "heads.region_transform.norm",
    "cls.imagePredictions.decoder": "heads.region_output",
    "cls.bi_seq_relationship": "heads.alignment_output",
}
_LAYERS = {"layer": ("text_layers", _SELF), "v_layer": ("image_layers", _SELF), "c_layer": ("connections", _CONNECTION)}
_TIED = "cls.predictions.decoder.weight"
# Two layers of each connection that the released code does not call, and heads of single tasks.
_UNUSED = re.compile(
    r"(?:bert\.encoder\.c_layer\.\d+\.biOutput\.q_dense[12]"
    r"|vil_prediction(?:_gqa)?\.logit_fc\.\d+|vil_binary_prediction\.logit_fc\.\d+"
    r"|vil_logit|vil_tri_prediction|vision_logit|linguisic_logit)\.(?:weight|bias)"
)

# Sizes in the released configuration → ours.
_CONFIG = {
    "vocab_size": "vocabulary_size",
    "vocab_size_or_config_json_file": "vocabulary_size",
    "max_position_embeddings": "positions",
    "type_vocab_size": "types",
    "hidden_size": "text_dim",
    "num_hidden_layers": "text_layers",
    "num_attention_heads": "text_heads",
    "intermediate_size": "text_inner",
    "v_feature_size": "feature_dim",
    "v_hidden_size": "image_dim",
    "v_num_hidden_layers": "image_layers",
    "v_num_attention_heads": "image_heads",
    "v_intermediate_size": "image_inner",
    "bi_hidden_size": "common_dim",
    "bi_num_attention_heads": "common_heads",
    "v_target_size": "region_outputs",
}


def is_released(tensors: Mapping[str, Tensor]) -> bool:
    """True if tensors have the released code's names."""
    return any(name.startswith("bert.encoder.c_layer.") for name in tensors)


def network_name(name: str, *, heads: bool = False) -> str | None:
    """The network's name for a tensor of a released file; None for a tensor that is not used.

    Unknown names are returned unchanged, so that loading rejects them.

    Args:
        name: in the file.
        heads: True if the network has the heads of pre-training.
    """
    if name == _TIED or _UNUSED.fullmatch(name):
        return None
    stem, _, end = name.rpartition(".")
    end = {"gamma": "weight", "beta": "bias"}.get(end, end)
    if stem in _RELEASED_HEADS:
        joined = f"{_RELEASED_HEADS[stem]}_{end}" if stem == "cls.predictions" else f"{_RELEASED_HEADS[stem]}.{end}"
        return joined if heads else None
    if match := re.fullmatch(r"bert\.encoder\.(layer|v_layer|c_layer)\.(\d+)\.(.+)", stem):
        stack, layer_parts = _LAYERS[match[1]]
        return f"{stack}.{match[2]}.{layer_parts[match[3]]}.{end}" if match[3] in layer_parts else name
    stem = stem.removeprefix("bert.")
    return f"{_WHOLE[stem]}.{end}" if stem in _WHOLE else name


def options_of(tensors: Mapping[str, Tensor], file: Path, config: VilbertOptions | None = None) -> VilbertOptions:
    """Sizes of the network in a released file.

    They follow from the tensors' shapes, except for the numbers of heads. These are from the configuration, or else the
    published ones.

    Args:
        tensors: by the network's names (:func:`network_name`).
        file: for messages.
        config: the file's configuration, if there is one; it must agree with the tensors.

    Raises:
        ModelError: a required tensor is missing or has a wrong shape, or the numbers of heads are invalid.
    """

    def dims(name: str, axes: int = 2) -> tuple[int, ...]:
        return tuple(shape_of(tensors, name, axes, file, _HINT))

    def count(stack: str) -> int:
        numbers = {int(match[1]) for name in tensors if (match := re.match(rf"{stack}\.(\d+)\.", name))}
        missing = set(range(max(len(numbers), 1))) - numbers
        if missing:  # a very large number must not create a network with that many layers
            message = f"has no layer {min(missing)} of its {stack.replace('_', ' ')}"
            raise ModelError(message, code="missing-key", value=f"{stack}.{min(missing)}", path=file, hint=_HINT)
        return len(numbers)

    heads = config or VilbertOptions()
    words, text_dim = dims("text_embedding.words.weight")
    image_dim, feature_dim = dims("image_embedding.features.weight")
    tasks = dims("text_embedding.tasks.weight")[0] if "text_embedding.tasks.weight" in tensors else 0
    regions = "heads.region_output.bias"
    try:
        options = VilbertOptions(
            vocabulary_size=words,
            positions=dims("text_embedding.positions.weight")[0],
            types=dims("text_embedding.types.weight")[0],
            tasks=tasks,
            text_dim=text_dim,
            text_layers=count("text_layers"),
            text_heads=heads.text_heads,
            text_inner=dims("text_layers.0.feed.inner.bias", 1)[0],
            feature_dim=feature_dim,
            image_dim=image_dim,
            image_layers=count("image_layers"),
            image_heads=heads.image_heads,
            image_inner=dims("image_layers.0.feed.inner.bias", 1)[0],
            common_dim=dims("text_pooler.bias", 1)[0],
            common_heads=heads.common_heads,
            connections=count("connections"),
            region_outputs=dims(regions, 1)[0] if regions in tensors else heads.region_outputs,
        )
    except UsageError as error:
        hint = "Put its configuration into the same folder as config.json"
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=hint) from error
    if config is not None:
        for name in ("vocabulary_size", "text_dim", "text_layers", "image_dim", "image_layers", "common_dim"):
            if getattr(options, name) != getattr(config, name):
                raise ModelError(
                    f"its weights have {name}={getattr(options, name)}, but its configuration {getattr(config, name)}",
                    code="mismatch",
                    value=name,
                    path=file,
                    hint="Put the configuration of these weights into the same folder as config.json",
                )
    elif (options.text_dim, options.image_dim, options.common_dim) != (768, 1024, 1024):
        raise ModelError(
            f"its streams have {options.text_dim} and {options.image_dim} components, not 768 and 1024 as the "
            "published ones, and its numbers of heads are unknown",
            code="missing-file",
            value=_CONFIGURATION,
            path=file,
            hint=f"Put its configuration, with the numbers of heads, into the same folder as {_CONFIGURATION}",
        )
    return options


def read_config(path: Path) -> VilbertOptions:
    """Sizes of a configuration of the released code (``bert_base_6layer_6conect.json``).

    Raises:
        MissingFileError: the file does not exist.
        DataError: the file is not such a configuration.
        ModelError: its sizes are invalid, or it has connections elsewhere than before the last layers.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not {"hidden_size", "v_hidden_size", "bi_hidden_size"} <= content.keys():
        raise DataError(
            "is not a configuration of ViLBERT",
            code="wrong-format",
            path=path,
            hint="Use the JSON file that was published with the weights",
        )
    sizes = {ours: content[theirs] for theirs, ours in _CONFIG.items() if theirs in content}
    try:
        options = VilbertOptions(
            **{"region_outputs": 1601, "tasks": 0, **sizes}, connections=len(content.get("t_biattention_id", [0] * 6))
        )
    except (TypeError, UsageError) as error:
        raise ModelError(
            f"its sizes are invalid: {getattr(error, 'message', error)}",
            code=getattr(error, "code", "wrong-type"),
            value=getattr(error, "value", None),
            path=path,
        ) from error
    for key in ("hidden_act", "v_hidden_act"):
        if content.get(key, "gelu") != "gelu":
            message = f"'{key}' is {str(content[key])[:60]}, but only gelu is supported"
            raise ModelError(message, code="unsupported", value=key, path=path)
    for key, layers in (("t_biattention_id", options.text_layers), ("v_biattention_id", options.image_layers)):
        if key in content and content[key] != list(range(layers - options.connections, layers)):
            raise ModelError(
                f"'{key}' is {str(content[key])[:60]}, but connections are supported before the last layers only",
                code="unsupported",
                value=key,
                path=path,
            )
    return options


# BERT's weights, with which the publication begins the text stream.

BERT_VOCABULARY = "vocab.txt"
"""Word pieces in the folder of a BERT."""
_BERT_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_BERT_STREAM = ("text_embedding.", "text_layers.", "heads.word")
_BERT_CUT = ("text_embedding.positions.weight", "text_embedding.types.weight")
_BERT_EXACT = {
    "text_dim": "hidden_size",
    "text_heads": "num_attention_heads",
    "text_inner": "intermediate_size",
    "vocabulary_size": "vocab_size",
}
_BERT_AT_MOST = {
    "text_layers": "num_hidden_layers",
    "positions": "max_position_embeddings",
    "types": "type_vocab_size",
}


def read_bert(folder: Path, network: Vilbert) -> tuple[dict[str, Tensor], str]:
    """Weights of a BERT for a network's text stream: embeddings, first layers and, if both have it, the word head.

    Args:
        folder: ``config.json`` and ``model.safetensors`` or ``pytorch_model.bin``, in the format of transformers.
        network: has as many components, heads and word pieces, and at most as many text layers and positions.

    Returns:
        Tensors by the network's names, and the SHA-256 of the weight file, 64 hex digits.

    Raises:
        MissingFileError: there is no such file.
        ModelError: the folder has no BERT of these sizes, or its weights are incomplete or not finite.
    """
    config = read_json(folder / _CONFIGURATION)
    if not isinstance(config, dict) or config.get("model_type", "bert") != "bert":
        kind = config.get("model_type") if isinstance(config, dict) else None
        hint = "Use a folder of bert-base-uncased or of another BERT in the format of transformers"
        path = folder / _CONFIGURATION
        raise ModelError("is not the configuration of a BERT", code="wrong-format", value=kind, path=path, hint=hint)
    if config.get("hidden_act", "gelu") != "gelu":
        message = f"'hidden_act' is {str(config['hidden_act'])[:60]}, but only gelu is supported"
        raise ModelError(message, code="unsupported", value="hidden_act", path=folder / _CONFIGURATION)
    for ours, theirs in {**_BERT_EXACT, **_BERT_AT_MOST}.items():
        size, available = getattr(network.options, ours), config.get(theirs)
        if not isinstance(available, int) or size > available or (size < available and ours in _BERT_EXACT):
            raise ModelError(
                f"has {theirs}={available}, which does not fit the network's {ours}={size}",
                code="mismatch",
                value=available,
                path=folder / _CONFIGURATION,
                hint=f"Set network.{ours} to {'at most ' if ours in _BERT_AT_MOST else ''}{available}",
            )
    file = next((folder / name for name in _BERT_WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise MissingFileError(f"has neither {' nor '.join(_BERT_WEIGHTS)}", value=_BERT_WEIGHTS[0], path=folder)
    read = read_checkpoint(file)
    wanted = {
        name: tensor
        for name, tensor in network.state_dict().items()
        if name.startswith(_BERT_STREAM) and name != "text_embedding.tasks.weight"
    }
    tensors: dict[str, Tensor] = {}
    for name, tensor in read.tensors.items():
        # A file of the network without heads has no prefix.
        renamed = network_name(name if name.startswith(("bert.", "cls.")) else f"bert.{name}", heads=True)
        if renamed in wanted:
            tensors[renamed] = tensor[: len(wanted[renamed])] if renamed in _BERT_CUT else tensor
    for name, tensor in wanted.items():
        if name not in tensors:
            if name.startswith("heads."):
                continue
            raise ModelError(f"has no weights for '{name}'", code="missing-key", value=name, path=file, hint=_AGAIN)
        if tensors[name].shape != tensor.shape:
            message = f"has the shape {tuple(tensors[name].shape)} for '{name}' instead of {tuple(tensor.shape)}"
            raise ModelError(message, code="wrong-shape", value=name, path=file, hint=_AGAIN)
        if not tensors[name].isfinite().all():
            message = f"has NaN or infinite weights for '{name}'"
            raise ModelError(message, code="not-a-number", value=name, path=file, hint=_AGAIN)
    return tensors, read.sha256


KIND = "capbench.vilbert/1"
_PUBLISHED = VilbertOptions()
_VERSION = 1  # of converted files
_VOCABULARIES = ("vocab.txt", "bert-base-uncased-vocab.txt")
_CONFIGURATION = "config.json"
_HEADS = "heads."
_BLOCK = 1 << 20


@dataclass(frozen=True, eq=False)
class VilbertModel(TrainedWeights[VilbertOptions]):
    """A trained ViLBERT with its word pieces.

    Attributes:
        network: in evaluation mode.
        pieces: one for each embedding of the network.
        sha256: of the weight file, 64 hex digits.
        path: the weight file.
        training: stored facts about the training (JSON values).
    """

    network: Vilbert = field(repr=False)
    pieces: WordPieces = field(repr=False)
    sha256: str
    path: Path
    training: Mapping[str, Any] = field(repr=False)

    @property
    def is_released(self) -> bool:
        """True for released weights, False for weights trained by capbench."""
        return self.training.get("source") == "released"

    @property
    def longest(self) -> int | None:
        """Maximum number of word pieces of a caption in training, with ``[CLS]`` and ``[SEP]``; None if unknown."""
        longest = self.training.get("longest")
        return longest if isinstance(longest, int) and not isinstance(longest, bool) and longest > 0 else None

    @property
    def shared(self) -> tuple[str, ...]:
        """Properties that networks of an ensemble must share; sizes of streams may differ."""
        return (
            "is a ViLBERT",
            f"reads features of {self.options.feature_dim} columns",
            f"has {self.options.connections} layers",
            f"knows {self.options.tasks} tasks",
            self.trained_on_kind,
        )

    @property
    def identity(self) -> str:
        """Identifier of the network: its file's SHA-256, and numbers of heads that are only in a configuration file."""
        sizes = self.options
        heads = (sizes.text_heads, sizes.image_heads, sizes.common_heads)
        published = (_PUBLISHED.text_heads, _PUBLISHED.image_heads, _PUBLISHED.common_heads)
        suffix = "" if not self.is_released or heads == published else f"+heads-{'-'.join(map(str, heads))}"
        return f"{self.sha256}{suffix}"

    def summary(self) -> dict[str, object]:
        """The model's properties in listings."""
        facts = {"words": len(self.pieces), "embed_dim": self.options.text_dim, "layers": self.options.connections}
        return {**facts, "features": self.features, "metric": "vilbertscore"}

    def signature_parts(self) -> dict[str, str]:
        """All properties of the model that can change a score, for a metric's signature."""
        return {
            "model": f"vilbert-{self.sha256[:16]}{self.identity.removeprefix(self.sha256)}",
            "pieces": f"{self.pieces.sha256[:16]}+{tokenizer_version()}",
        }


def save_vilbert(
    path: str | os.PathLike[str], network: Vilbert, pieces: WordPieces, training: Mapping[str, Any]
) -> None:
    """Write one self-contained ``.safetensors``.

    Args:
        path: the file; written atomically.
        network: its options and weights; with heads or without.
        pieces: one for each embedding of the network.
        training: facts about the training, JSON values; ``features`` is the fingerprint id of the features.

    Raises:
        ModelError: the number of word pieces is wrong, or a weight is NaN or infinite.
    """
    _check_size(pieces, network.options, path)
    write_safetensors(path, network.state_dict(), _metadata(network.options, pieces, training))


def _metadata(options: VilbertOptions, pieces: WordPieces | None, training: Mapping[str, Any]) -> dict[str, str]:
    metadata = {
        "format": "pt",
        "kind": KIND,
        "options": json.dumps(dataclasses.asdict(options)),
        "training": json.dumps(dict(training), ensure_ascii=False, sort_keys=True),
    }
    if pieces is not None:
        metadata["pieces"] = json.dumps(pieces.pieces, ensure_ascii=False)
    return metadata


def load_vilbert(
    path: str | os.PathLike[str],
    vocabulary: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    *,
    heads: bool = False,
) -> VilbertModel:
    """Load a model from capbench's own file or a released checkpoint.

    Args:
        path: ``.safetensors`` written by :func:`save_vilbert`, or ``pretrained_model.bin`` or ``multi_task_model.bin``
            of the released code, under any name. A ``config.json`` in the folder of such a checkpoint is read as the
            released code's configuration.
        vocabulary: BERT's ``vocab.txt``; required for a released checkpoint unless it is in the same folder.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        heads: True loads the heads of pre-training too; if the file has none, they are initialised.

    Raises:
        MissingFileError: the file does not exist.
        ModelError: the file is not a ViLBERT, is damaged, or its parts are inconsistent.
        DataError: the vocabulary cannot be read.
    """
    file = Path(path)
    digest = sha256_file(file)
    ensemble = read_ensemble(file)
    if ensemble is not None:
        raise ModelError(
            f"is an ensemble of {len(ensemble.parts)} networks, but a single network is required",
            code="unsupported",
            value=len(ensemble.parts),
            path=file,
            hint=f"Use one of them, such as {ensemble.parts[0].path}",
        )
    metadata = read_metadata(file)
    if metadata is not None and metadata.get("kind") == KIND:
        tensors, options, training = _read_capbench(file, metadata)
        pieces = _stored_pieces(file, metadata)
        if vocabulary is not None and read_word_pieces(vocabulary).pieces != pieces.pieces:
            raise ModelError(
                f"contains other word pieces than {os.fspath(vocabulary)}",
                code="mismatch",
                value=os.fspath(vocabulary),
                path=file,
                hint="Omit the vocabulary",
            )
    else:
        tensors, options, training = _read_released(file, digest)
        pieces = _find_pieces(file, vocabulary)
    _check_size(pieces, options, file)
    network = _network(options, tensors, file, heads=heads)
    return VilbertModel(network.to(device), pieces, digest, file, training)


def _network(options: VilbertOptions, tensors: Mapping[str, Tensor], file: Path, *, heads: bool) -> Vilbert:
    """The network with these tensors as its weights, without copying memory-mapped ones."""
    stored = any(name.startswith(_HEADS) for name in tensors)
    if options.text_layers + options.image_layers + options.connections > len(tensors):
        raise ModelError("has fewer tensors than layers", code="damaged", path=file, hint=_AGAIN)
    with torch.device("meta"):
        network = Vilbert(options, heads=heads and stored)
    used = {name: tensor for name, tensor in tensors.items() if heads or not name.startswith(_HEADS)}
    fit_state(network, used, file, assign=True)
    if heads and not stored:
        network.heads = Vilbert(dataclasses.replace(options), torch.Generator().manual_seed(0), heads=True).heads
    network.requires_grad_(False)
    return network.eval()


def _read_capbench(file: Path, metadata: Mapping[str, str]) -> tuple[dict[str, Tensor], VilbertOptions, dict[str, Any]]:
    try:
        options = VilbertOptions(**json.loads(metadata["options"]))
        training = dict(json.loads(metadata["training"]))
    except CapbenchError as error:
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=error.hint) from error
    except (KeyError, TypeError, ValueError) as error:
        message = f"its metadata cannot be read ({error})"
        raise ModelError(message, code="damaged", path=file, hint=_AGAIN) from error
    return tensors_of(map_safetensors(file), file), options, training


def _stored_pieces(file: Path, metadata: Mapping[str, str]) -> WordPieces:
    try:
        pieces = json.loads(metadata["pieces"])
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise ValueError("not a list of texts")
        return WordPieces(tuple(pieces))
    except (KeyError, ValueError) as error:
        message = f"its word pieces cannot be read ({error})"
        raise ModelError(message, code="damaged", path=file, hint=_AGAIN) from error
    except UsageError as error:
        raise ModelError(error.message, code=error.code, value=error.value, path=file, hint=_AGAIN) from error


def _read_released(file: Path, digest: str) -> tuple[dict[str, Tensor], VilbertOptions, dict[str, Any]]:
    """Load a released file from its converted copy, which is created first if it is missing or damaged."""
    config_file = file.parent / _CONFIGURATION
    config = read_config(config_file) if config_file.exists() else None
    target = cache_dir("vilbert") / f"{digest}-{_VERSION}.safetensors"
    tensors = _read_converted(target)
    if tensors is None:
        with lock(target):
            tensors = _read_converted(target)  # another process may have written it in the meantime
            if tensors is None:
                _convert(file, target)
                tensors = _read_converted(target)
    if tensors is None:
        raise UsageError(
            "the file that was just written is damaged",
            code="unwritable",
            path=target,
            hint="Check the disk, or set CAPBENCH_CACHE to a folder on another one",
        )
    return tensors, options_of(tensors, file, config), {"source": "released"}


def _convert(file: Path, target: Path) -> None:
    """Write a released file's tensors under the network's names, with their checksum."""
    released = read_checkpoint(file).tensors
    if not is_released(released):
        raise ModelError(
            "is not a ViLBERT",
            code="wrong-weights",
            path=file,
            hint=_HINT,
        )
    tensors: dict[str, Tensor] = {}
    for name, tensor in released.items():
        renamed = network_name(name, heads=True)
        if renamed is None:
            continue
        if renamed in tensors:
            message = f"has two tensors for '{renamed}', one of them '{name}'"
            raise ModelError(message, code="duplicate", value=name, path=file)
        if not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            message = f"'{name}' has the type {kind}, not a floating-point type"
            raise ModelError(message, code="wrong-type", value=name, path=file)
        tensors[renamed] = tensor.float()
    # Invalid files raise before the converted copy is written.
    config_file = file.parent / _CONFIGURATION
    options = options_of(tensors, file, read_config(config_file) if config_file.exists() else None)
    _network(options, tensors, file, heads=True)
    checksum = 0
    for name in sorted(tensors):
        checksum = zlib.crc32(tensors[name].contiguous().numpy().reshape(-1).view("u1").data, checksum)
    write_safetensors(
        target, tensors, {"format": "pt", "kind": "capbench.vilbert-tensors/1", "crc32": f"{checksum:08x}"}
    )


def _read_converted(target: Path) -> dict[str, Tensor] | None:
    """Tensors of a file that :func:`_convert` wrote; None if it is missing or damaged."""
    metadata = read_metadata(target)
    if metadata is None:
        return None
    try:
        tensors = map_safetensors(target)
    except (ModelError, MissingFileError):
        return None
    checksum = 0
    for name in sorted(tensors):
        flat = tensors[name].numpy().reshape(-1).view("u1")
        for begin in range(0, len(flat), _BLOCK):
            checksum = zlib.crc32(flat[begin : begin + _BLOCK].data, checksum)
    return tensors if metadata.get("crc32") == f"{checksum:08x}" else None


def files_beside(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Configuration and vocabulary files in the folder of a released checkpoint, which are read with it."""
    folder = Path(path).parent
    return tuple(file for name in (_CONFIGURATION, *_VOCABULARIES) if (file := folder / name).is_file())


def _find_pieces(file: Path, chosen: str | os.PathLike[str] | None) -> WordPieces:
    if chosen is not None:
        return read_word_pieces(chosen)
    for name in _VOCABULARIES:
        if (file.parent / name).exists():
            return read_word_pieces(file.parent / name)
    raise ModelError(
        "has no vocabulary in its folder",
        code="missing-file",
        value=_VOCABULARIES[0],
        path=file,
        hint=f"Put bert-base-uncased's {_VOCABULARIES[0]} into its folder, or set the option 'vocabulary' to its path",
    )


def _check_size(pieces: WordPieces, options: VilbertOptions, path: str | os.PathLike[str]) -> None:
    if len(pieces) != options.vocabulary_size:
        raise ModelError(
            f"there are {len(pieces)} word pieces, but the weights are for {options.vocabulary_size}",
            code="mismatch",
            value=len(pieces),
            path=path,
            hint="Use the vocabulary that the model was trained with",
        )

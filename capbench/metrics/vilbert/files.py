"""Weight files of ViLBERT in capbench's format and the released one, and loaded models with their word pieces.

capbench's format is one ``.safetensors`` with sizes, word pieces and training facts in its metadata.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from capbench.core.errors import MissingFileError, ModelError, UsageError
from capbench.core.files import read_json
from capbench.metrics.vilbert.network import Vilbert, VilbertOptions
from capbench.text.word_pieces import WordPieces, read_word_pieces, tokenizer_version
from capbench.weights.arrays import read_metadata
from capbench.weights.checkpoints import fitting_tensors, read_checkpoint, shapes_only
from capbench.weights.files import Stored, TrainedModel, check_size, write_safetensors

VOCABULARY = "vocab.txt"  # BERT's word pieces, in the folder of a BERT or of a released checkpoint
_VOCABULARIES = (VOCABULARY, "bert-base-uncased-vocab.txt")
_CONFIGURATION = "config.json"

# Released checkpoints: ``pretrained_model.bin`` (533 tensors; Lu et al., NeurIPS 2019) and ``multi_task_model.bin``
# (560; Lu et al., CVPR 2020), with the names of the released code (facebookresearch/vilbert-multi-task).

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
_CONNECTION: dict[str, str] = {}
for _number, _letter, _side in ((1, "v", "image"), (2, "t", "text")):  # as the released code calls both streams
    _CONNECTION |= {f"biattention.{part}{_number}": f"{_side}_{part}" for part in ("query", "key", "value")}
    _CONNECTION |= {f"{_letter}_intermediate.dense": f"{_side}_feed.inner"}
    for _theirs, _ours in (("dense", "linear"), ("LayerNorm", "norm")):
        _CONNECTION[f"biOutput.{_theirs}{_number}"] = f"{_side}_attended.{_ours}"
        _CONNECTION[f"{_letter}_output.{_theirs}"] = f"{_side}_feed.outer.{_ours}"
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
    "cls.predictions.transform.dense": "heads.word_transform.linear",
    "cls.predictions.transform.LayerNorm": "heads.word_transform.norm",
    "cls.imagePredictions.transform.dense": "heads.region_transform.linear",
    "cls.imagePredictions.transform.LayerNorm": "heads.region_transform.norm",
    "cls.imagePredictions.decoder": "heads.region_output",
    "cls.bi_seq_relationship": "heads.alignment_output",
}
_LAYERS = {"layer": ("text_layers", _SELF), "v_layer": ("image_layers", _SELF), "c_layer": ("connections", _CONNECTION)}
# The tied word embeddings, two layers of each connection that the released code does not call, heads of single tasks.
_UNUSED = re.compile(
    r"(?:bert\.encoder\.c_layer\.\d+\.biOutput\.q_dense[12]|cls\.predictions\.decoder"
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
}


def network_name(name: str) -> str | None:
    """The network's name for a tensor of a released file; None if it is not used. Other names are unchanged."""
    if _UNUSED.fullmatch(name):
        return None
    if name == "cls.predictions.bias":
        return "heads.word_bias"
    stem, _, end = name.rpartition(".")
    end = {"gamma": "weight", "beta": "bias"}.get(end, end)
    if match := re.fullmatch(r"bert\.encoder\.(layer|v_layer|c_layer)\.(\d+)\.(.+)", stem):
        stack, layer_parts = _LAYERS[match[1]]
        return f"{stack}.{match[2]}.{layer_parts[match[3]]}.{end}" if match[3] in layer_parts else name
    stem = stem.removeprefix("bert.")
    return f"{_WHOLE[stem]}.{end}" if stem in _WHOLE else name


def released_options(tensors: Mapping[str, Tensor], file: Path) -> VilbertOptions:
    """Sizes of the network in a released file: those of ``config.json`` in its folder, or else the published ones."""
    tasks = tensors.get("bert.embeddings.task_embeddings.weight")
    sizes: dict[str, Any] = {"tasks": 0 if tasks is None else len(tasks)}
    path = file.with_name(_CONFIGURATION)
    if not path.exists():
        return VilbertOptions(**sizes)
    content = read_json(path)
    try:
        sizes |= {ours: content[theirs] for theirs, ours in _CONFIG.items() if theirs in content}
        options = VilbertOptions(**sizes, connections=len(content.get("t_biattention_id", [0] * 6)))
    except (TypeError, AttributeError, ArithmeticError, UsageError) as error:
        message = f"is not a configuration of ViLBERT ({getattr(error, 'message', error)})"
        hint = "Use the JSON file that was published with the weights"
        raise ModelError(message, code="wrong-format", path=path, hint=hint) from error
    only = {"hidden_act": "gelu", "v_hidden_act": "gelu"}
    for key, layers in (("t_biattention_id", options.text_layers), ("v_biattention_id", options.image_layers)):
        only[key] = list(range(layers - options.connections, layers))  # type: ignore[assignment]
    _check_config(content, only, "unsupported", path)
    return options


def _check_config(content: Mapping[str, Any], only: Mapping[str, Any], code: str, path: Path) -> None:
    for key, value in only.items():
        if content.get(key, value) != value:
            message = f"'{key}' is {str(content[key])[:60]}, but the network requires {value}"
            raise ModelError(message, code=code, value=key, path=path)


# BERT's weights, with which the publication begins the text stream.

_BERT_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_BERT_STREAM = ("text_embedding.", "text_layers.", "heads.word")
_BERT_CUT = ("text_embedding.positions.weight", "text_embedding.types.weight")


def read_bert(folder: Path, network: Vilbert) -> tuple[dict[str, Tensor], str]:
    """Weights of a BERT in transformers' format for a network's text stream, and the SHA-256 of the weight file.

    These are the embeddings, the first layers and, if both have it, the word head, by the network's names.
    """
    config = read_json(folder / _CONFIGURATION)
    # Other sizes are those of the tensors.
    only = {"model_type": "bert", "hidden_act": "gelu", "num_attention_heads": network.options.text_heads}
    _check_config(config, only, "mismatch", folder / _CONFIGURATION)
    file = next((folder / name for name in _BERT_WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise MissingFileError(f"has neither {' nor '.join(_BERT_WEIGHTS)}", value=_BERT_WEIGHTS[0], path=folder)
    state = network.state_dict()
    stream = {name for name in state if name.startswith(_BERT_STREAM)} - {"text_embedding.tasks.weight"}

    def rename(name: str) -> str | None:
        # A file of the network without heads has no prefix.
        ours = network_name(name if name.startswith(("bert.", "cls.")) else f"bert.{name}")
        return ours if ours in stream else None

    read = read_checkpoint(file)
    cut = {
        name: tensor[: len(state[ours])] if (ours := rename(name)) in _BERT_CUT else tensor
        for name, tensor in read.tensors.items()
    }
    optional = [name for name in state if name not in stream or name.startswith("heads.")]
    return fitting_tensors(network, cut, file, rename=rename, optional=optional), read.sha256


class VilbertModel(TrainedModel[Vilbert, VilbertOptions]):
    """A trained ViLBERT with its word pieces."""

    title, network_type, option_type, words = "ViLBERT", Vilbert, VilbertOptions, ("pieces", WordPieces)

    @classmethod
    def stored(cls, path: Path) -> Stored | None:
        return super().stored(path) if "kind" in (read_metadata(path) or {}) else None

    @property
    def is_released(self) -> bool:
        """True for released weights, False for weights trained by capbench."""
        return self.training.get("source") == "released"

    @property
    def shared(self) -> tuple[str, ...]:
        return (
            "is a ViLBERT",
            f"reads features of {self.options.feature_dim} columns",
            f"has {self.options.connections} layers",
            f"knows {self.options.tasks} tasks",
            self.trained_on_kind,
        )

    def summary(self) -> dict[str, object]:
        facts = {"words": len(self.vocabulary), "embed_dim": self.options.text_dim, "layers": self.options.connections}
        return {**facts, "features": self.features, "metric": "vilbertscore"}

    def signature_parts(self) -> dict[str, str]:
        # Numbers of heads are not in a released file; other ones than the published are signed.
        heads = (self.options.text_heads, self.options.image_heads, self.options.common_heads)
        other = self.is_released and heads != (12, 8, 8)
        return {
            "model": f"vilbert-{self.sha256[:16]}{'+heads-{}-{}-{}'.format(*heads) if other else ''}",
            "pieces": f"{self.vocabulary.sha256[:16]}+{tokenizer_version()}",
        }


def save_vilbert(
    path: str | os.PathLike[str], network: Vilbert, pieces: WordPieces, training: Mapping[str, Any]
) -> None:
    """Write one ``.safetensors`` of a network without its heads, and facts of the training (JSON values)."""
    check_size(pieces, network.options.vocabulary_size, path)
    metadata = {
        "format": "pt",
        "kind": Vilbert.kind,
        "options": json.dumps(dataclasses.asdict(network.options)),
        "training": json.dumps(dict(training), ensure_ascii=False, sort_keys=True),
        "pieces": json.dumps(pieces.pieces, ensure_ascii=False),
    }
    used = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("heads.")}
    write_safetensors(path, used, metadata)


def load_vilbert(
    path: str | os.PathLike[str], vocabulary: str | os.PathLike[str] | None = None, device: str = "cpu"
) -> VilbertModel:
    """Load a model, without the heads of pre-training, from capbench's own file or a released checkpoint.

    A ``config.json`` in the folder of a released checkpoint is read as the released code's configuration;
    ``vocabulary`` is BERT's ``vocab.txt``, required for such a checkpoint unless it is in the same folder.
    """

    def released(file: Path) -> Stored:
        tensors = read_checkpoint(file).tensors
        if not any(name.startswith("bert.encoder.c_layer.") for name in tensors):
            hint = "Use pretrained_model.bin or multi_task_model.bin of ViLBERT, or a model of 'capbench train vilbert'"
            raise ModelError("is not a ViLBERT", code="wrong-weights", path=file, hint=hint)
        options = released_options(tensors, file)
        found = vocabulary or next((path for name in _VOCABULARIES if (path := file.with_name(name)).exists()), None)
        if found is None:
            message = "has no vocabulary in its folder"
            hint = f"Put bert-base-uncased's {VOCABULARY} into its folder, or set the option 'vocabulary' to its path"
            raise ModelError(message, code="missing-file", value=VOCABULARY, path=file, hint=hint)
        with shapes_only():
            network = Vilbert(options)
        used = {name: tensor for name, tensor in tensors.items() if not (network_name(name) or "").startswith("heads.")}
        fitting = fitting_tensors(network, used, file, rename=network_name)
        return Stored(fitting, options, read_word_pieces(found), {"source": "released"})

    return VilbertModel.load(path, device, released)

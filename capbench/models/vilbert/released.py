"""The released checkpoints of ViLBERT: plain state dicts with other names, and what of them is read.

Known are ``pretrained_model.bin`` (533 tensors; Lu et al., NeurIPS 2019) and ``multi_task_model.bin`` (560; Lu et al.,
CVPR 2020). The names of their tensors are those of the released code (facebookresearch/vilbert-multi-task).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from capbench.errors import DataError, ModelError, UsageError
from capbench.files import read_json
from capbench.models.checkpoints import shape_of
from capbench.models.vilbert.options import VilbertOptions

__all__ = ["UNUSED", "is_released", "network_name", "options_of", "read_config"]

UNUSED = (
    "encoder.c_layer.*.biOutput.q_dense1",
    "encoder.c_layer.*.biOutput.q_dense2",
    "vil_prediction",
    "vil_prediction_gqa",
    "vil_binary_prediction",
    "vil_logit",
    "vil_tri_prediction",
    "vision_logit",
    "linguisic_logit",
)
"""What the files hold beside the network: two layers of each connection that the released code never calls, and heads
of single tasks. ``cls.predictions.decoder.weight`` is the word embeddings again."""

_HINT = "Give pretrained_model.bin or multi_task_model.bin of ViLBERT, or a model made by 'capbench train vilbert'"

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
_HEADS = {
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
_UNUSED_PATTERN = re.compile(
    r"(?:bert\.encoder\.c_layer\.\d+\.biOutput\.q_dense[12]"
    r"|vil_prediction(?:_gqa)?\.logit_fc\.\d+|vil_binary_prediction\.logit_fc\.\d+"
    r"|vil_logit|vil_tri_prediction|vision_logit|linguisic_logit)\.(?:weight|bias)"
)

# The released configuration's names of sizes.
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
    """Whether tensors have the released code's names."""
    return any(name.startswith("bert.encoder.c_layer.") for name in tensors)


def network_name(name: str, *, heads: bool = False) -> str | None:
    """The network's name for a tensor of a released file; None for one that is not needed (:data:`UNUSED`).

    A name that no released file has is given back as it is, so that loading refuses it.

    Args:
        name: in the file.
        heads: whether the network has the heads of pre-training.
    """
    if name == _TIED or _UNUSED_PATTERN.fullmatch(name):
        return None
    stem, _, end = name.rpartition(".")
    end = {"gamma": "weight", "beta": "bias"}.get(end, end)
    if stem in _HEADS:
        joined = f"{_HEADS[stem]}_{end}" if stem == "cls.predictions" else f"{_HEADS[stem]}.{end}"
        return joined if heads else None
    if match := re.fullmatch(r"bert\.encoder\.(layer|v_layer|c_layer)\.(\d+)\.(.+)", stem):
        stack, layer_parts = _LAYERS[match[1]]
        return f"{stack}.{match[2]}.{layer_parts[match[3]]}.{end}" if match[3] in layer_parts else name
    stem = stem.removeprefix("bert.")
    return f"{_WHOLE[stem]}.{end}" if stem in _WHOLE else name


def options_of(tensors: Mapping[str, Tensor], file: Path, config: VilbertOptions | None = None) -> VilbertOptions:
    """The sizes of a released file.

    All but the numbers of heads are told by the tensors. These are the published ones unless a configuration says
    others.

    Args:
        tensors: by the network's names (:func:`network_name`).
        file: for messages.
        config: what its configuration says, if there is one; the tensors must fit it.

    Raises:
        ModelError: a tensor that tells a size is missing or of a wrong shape, or the heads do not fit.
    """

    def dims(name: str, axes: int = 2) -> tuple[int, ...]:
        return tuple(shape_of(tensors, name, axes, file, _HINT))

    def count(stack: str) -> int:
        numbers = {int(match[1]) for name in tensors if (match := re.match(rf"{stack}\.(\d+)\.", name))}
        missing = set(range(max(len(numbers), 1))) - numbers
        if missing:  # a number beyond all bounds must not make a network of that many layers
            raise ModelError(f"lacks layer {min(missing)} of its {stack.replace('_', ' ')}", path=file, hint=_HINT)
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
        raise ModelError(error.message, path=file, hint="Put its configuration beside it as config.json") from error
    if config is not None:
        for name in ("vocabulary_size", "text_dim", "text_layers", "image_dim", "image_layers", "common_dim"):
            if getattr(options, name) != getattr(config, name):
                raise ModelError(
                    f"its weights have {name}={getattr(options, name)}, its configuration says {getattr(config, name)}",
                    path=file,
                    hint="Put the configuration of these weights beside them",
                )
    elif (options.text_dim, options.image_dim, options.common_dim) != (768, 1024, 1024):
        raise ModelError(
            f"its streams have {options.text_dim} and {options.image_dim} components, the published ones 768 and 1024",
            path=file,
            hint="Put its configuration beside it as config.json, which says how many heads it has",
        )
    return options


def read_config(path: Path) -> VilbertOptions:
    """Sizes of a configuration of the released code (``bert_base_6layer_6conect.json``).

    Raises:
        MissingFileError: there is no such file.
        DataError: it is no such configuration.
        ModelError: its sizes are none that a network can have, or it wants connections elsewhere than at the end.
    """
    content = read_json(path)
    if not isinstance(content, dict) or not {"hidden_size", "v_hidden_size", "bi_hidden_size"} <= content.keys():
        raise DataError("is no configuration of ViLBERT", path=path, hint="Give the JSON that the weights came with")
    sizes = {ours: content[theirs] for theirs, ours in _CONFIG.items() if theirs in content}
    try:
        options = VilbertOptions(
            **{"region_outputs": 1601, "tasks": 0, **sizes}, connections=len(content.get("t_biattention_id", [0] * 6))
        )
    except (TypeError, UsageError) as error:
        raise ModelError(f"its sizes do not fit: {getattr(error, 'message', error)}", path=path) from error
    for key in ("hidden_act", "v_hidden_act"):
        if content.get(key, "gelu") != "gelu":
            raise ModelError(f"'{key}' is {str(content[key])[:60]}: only gelu is known", path=path)
    for key, layers in (("t_biattention_id", options.text_layers), ("v_biattention_id", options.image_layers)):
        if key in content and content[key] != list(range(layers - options.connections, layers)):
            raise ModelError(
                f"'{key}' is {str(content[key])[:60]}: connections are read before the last layers only", path=path
            )
    return options

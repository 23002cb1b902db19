"""The registry of weight files: their sources, locations and checksums.

The entries are in ``registry.yaml``. Weights of ``grid:BACKBONE`` are not listed: torchvision provides their official
addresses, whose names end in the first digits of the SHA-256.

A file is stored in ``$CAPBENCH_MODELS/NAME/FILE`` (default: ``$CAPBENCH_HOME/models`` or the user's data folder), with
a record of its SHA-256 next to it. Files with another checksum than the official or the recorded one are rejected.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from capbench.core.errors import DataError, MissingFileError, ModelError, UsageError, suggest
from capbench.core.files import atomic_write, lock, read_json, sha256_file, write_text
from capbench.core.typed_json import Strict, validated
from capbench.weights.ensembles import read_ensemble

if TYPE_CHECKING:
    import torch

UNKNOWN = "unknown"
"""Value of ``sha256`` for an address whose publisher does not state one."""


class Entry(BaseModel):
    """Facts about one weight file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str
    title: str
    used_by: tuple[str, ...] = Field(alias="for", min_length=1)
    file: str = Field(pattern=r"^[\w.+-]+$")
    beside: tuple[str, ...] = ()
    page: str
    terms: str
    manual: str
    url: str | None = None
    sha256: str | None = Field(default=None, pattern=f"^([0-9a-f]{{64}}|{UNKNOWN})$")
    sha256_prefix: str | None = Field(default=None, pattern="^[0-9a-f]{8,63}$")
    sha256_observed: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    megabytes: int | None = None
    tensors: int | None = None
    shapes: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    note: str | None = None
    steps: str | None = None

    @model_validator(mode="after")
    def _one_hash(self) -> Entry:
        if sum(digits is not None for digits in (self.sha256, self.sha256_prefix, self.sha256_observed)) > 1:
            raise ValueError("give one of 'sha256', 'sha256_prefix' and 'sha256_observed'")
        if self.url is not None and not (self.sha256 or self.sha256_prefix or self.sha256_observed):
            raise ValueError(f"an address requires a checksum, or 'sha256: {UNKNOWN}' if it is unknown")
        return self

    @property
    def expected(self) -> str | None:
        """The official SHA-256 or its first digits; None if unknown."""
        return self.sha256_prefix if self.sha256 in (None, UNKNOWN) else self.sha256

    @property
    def path(self) -> Path:
        """Location of the file after it is added."""
        return models_dir() / re.sub(r"[^\w.+-]", "_", self.name) / self.file

    @property
    def by_hand(self) -> str:
        """Instructions for installing the weights without a download."""
        return f"{self.manual}, then: capbench models add {self.name} FILE"

    @property
    def is_folder(self) -> bool:
        """True if a model consists of a folder in the format of ``transformers`` instead of one file."""
        return "config.json" in self.beside

    @property
    def absent_beside(self) -> tuple[str, ...]:
        """Files that belong next to the installed file and are missing."""
        return tuple(name for name in self.beside if not self.path.with_name(name).exists())


@dataclass(frozen=True)
class Status:
    """Installation status of an entry.

    Attributes:
        name: name of the entry.
        state: ``here`` (installed and correct), ``missing``, or ``wrong`` (another checksum than the official or the
            recorded one).
        path: location of the file.
        sha256: SHA-256 of the installed file.
        expected: official digits, or else the digits recorded when the file was added.
        official: True if ``expected`` is from the publisher.
        remark: warning about an accepted file, or None.
        fits: True if its tensors have the number and shapes of the published file, False if not, None if they were not
            compared.
    """

    name: str
    state: Literal["here", "missing", "wrong"]
    path: str
    sha256: str | None
    expected: str | None
    official: bool
    remark: str | None = None
    fits: bool | None = None


class _Registry(Strict):
    schema_version: Literal[1] = Field(alias="schema")
    models: dict[str, Entry]


def parse_registry(text: str, path: str = "registry.yaml") -> dict[str, Entry]:
    """Parse and check a registry's YAML text. Raises DataError for the first invalid key."""
    from capbench.core.yaml import parse_own

    registry = parse_own(text, path)
    if isinstance(registry, dict) and isinstance(registry.get("models"), dict):
        registry["models"] = {
            name: {"name": name, **value} if isinstance(value, dict) else value
            for name, value in registry["models"].items()
        }
    return validated(_Registry, registry, path).models


@functools.cache
def entries() -> dict[str, Entry]:
    """capbench's registry, by name."""
    text = importlib.resources.files("capbench.weights").joinpath("registry.yaml").read_text(encoding="utf-8")
    return parse_registry(text)


def entry(name: str) -> Entry:
    """An entry by its name, from torchvision for ``grid:BACKBONE``. Raises UsageError with the choices."""
    if name in entries():
        return entries()[name]
    if name.startswith("grid:"):
        return _grid_entry(name)
    hint = suggest(name, [*entries(), "grid:BACKBONE"])
    raise UsageError(f"unknown model '{name}'", code="unknown-name", value=name, hint=hint)


@functools.cache
def _grid_entry(name: str) -> Entry:
    from torchvision import models

    backbone = name.partition(":")[2]
    backbones = models.list_models(module=models)
    if backbone not in backbones:
        near = suggest(backbone, backbones).split(" Choices")[0]
        hint = near if near.startswith("Did") else f"torchvision's backbones: {', '.join(backbones)}"
        raise UsageError(
            f"torchvision has no backbone '{backbone}'",
            code="unknown-name",
            value=backbone,
            hint=hint.rstrip("?") + "?" * hint.endswith("?"),
        )
    weights = models.get_model_weights(backbone).DEFAULT
    file = str(weights.url).rsplit("/", 1)[-1]
    digits = re.search(r"-([0-9a-f]{8,})\.pth$", file)
    size = weights.meta.get("_file_size")
    return Entry.model_validate(
        {
            "name": name,
            "title": f"{backbone} of torchvision ({weights.name}), for grid features",
            "for": (name,),
            "file": file,
            "page": "https://docs.pytorch.org/vision/stable/models.html",
            "url": weights.url,
            "sha256": None if digits else UNKNOWN,
            "sha256_prefix": digits.group(1) if digits else None,
            "megabytes": round(size) if size else None,
            "terms": _terms(weights),
            "manual": "Download the file from its address",
        }
    )


def _terms(weights: Any) -> str:
    """Licence terms of a backbone's weights."""
    if "license" in weights.meta:  # the SWAG weights; torchvision names no licence for others
        return f"CC BY-NC 4.0 according to torchvision's README ({weights.meta['license']})"
    return (
        "torchvision's code is under the BSD 3-clause licence; according to its README, terms for the weights may "
        "derive from the training data: ImageNet (non-commercial research and education)"
    )


def models_dir() -> Path:
    """The folder of weight files: ``$CAPBENCH_MODELS``, or ``models`` in ``$CAPBENCH_HOME`` or the user data folder."""
    folder = os.environ.get("CAPBENCH_MODELS")
    if folder:
        return Path(folder).expanduser()
    home = os.environ.get("CAPBENCH_HOME")
    if home:
        return Path(home).expanduser() / "models"
    import platformdirs

    return Path(platformdirs.user_data_dir("capbench", appauthor=False)) / "models"


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + ".record.json")


def _recorded(path: Path) -> dict[str, Any]:
    """The record from when a file was added, with at least its ``sha256``; empty without a record."""
    record = _record_path(path)
    if not record.exists():
        return {}
    facts = read_json(record)
    digest = facts.get("sha256") if isinstance(facts, dict) else None
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        hint = "Remove the record and add the weights again"
        raise DataError("has no SHA-256", code="missing-key", value="sha256", path=record, hint=hint)
    return dict(facts)


def status(name: str) -> Status:
    """Installation status of an entry; reads an installed file to compare its checksum.

    Raises:
        UsageError: there is no such entry.
    """
    weights = entry(name)
    path = weights.path
    record = _recorded(path)
    expected = weights.expected or record.get("sha256")
    official = weights.expected is not None
    if not path.exists():
        return Status(name, "missing", str(path), None, weights.expected, official)
    digest = sha256_file(path)
    right = expected is None or digest.startswith(expected)
    difference = record.get("difference")
    fits = difference is None if "difference" in record and record.get("sha256") == digest else None
    remark = _remark(weights, digest, str(difference) if fits is False else None)
    return Status(name, "here" if right else "wrong", str(path), digest, expected, official, remark, fits)


def _remark(weights: Entry, digest: str, difference: str | None) -> str | None:
    remarks = []
    if difference is not None:
        remarks.append(f"its tensors are not those of the published {weights.file}: {difference}")
    observed = weights.sha256_observed
    if observed is not None and observed != digest:
        remarks.append(
            f"its SHA-256 is not that of the copies of {weights.file} that others report ({observed}; the publisher "
            "was not seen to state one): it may be another revision or form of the weights, or other weights"
        )
    if weights.is_folder and (absent := weights.absent_beside):
        remarks.append(f"missing next to it: {', '.join(absent)} (from {weights.page})")
    return "; ".join(remarks) or None


def _difference(weights: Entry, tensors: Mapping[str, torch.Tensor]) -> str | None:
    """The first difference between a file's tensors and those of the entry, or None."""
    for name, shape in weights.shapes.items():
        if name not in tensors:
            return f"it has no '{name}'"
        if tuple(tensors[name].shape) != shape:
            return f"'{name}' has the shape {tuple(tensors[name].shape)}, the published one {shape}"
    if weights.tensors is not None and len(tensors) != weights.tensors:
        return f"it has {len(tensors)} tensors, the published one {weights.tensors}"
    return None


def _wrong_file(path: Path, expected: str, actual: str, *, official: bool) -> ModelError:
    source = "official" if official else "recorded when it was added"
    digits = f"{expected}... ({len(expected)} digits are known)" if len(expected) < 64 else expected
    return ModelError(
        f"these are other weights: expected SHA-256 {digits}, {source}; found {actual}",
        code="wrong-weights",
        value=actual,
        path=path,
        hint="Download the file again from its official source",
    )


def _read_tensors(file: Path) -> Mapping[str, torch.Tensor]:
    from capbench.weights.checkpoints import read_checkpoint

    return read_checkpoint(file).tensors


def add(
    name: str,
    file: str | os.PathLike[str],
    *,
    replace: bool = False,
    move: bool = False,
    read: Callable[[Path], Mapping[str, torch.Tensor]] | None = None,
) -> Status:
    """Check a weight file and copy it to the folder of weight files, with the files that belong next to it.

    Tensors of other shapes than those of the entry are not an error: the status has a remark on them.

    Args:
        name: name of the entry.
        file: the downloaded file.
        replace: replace an existing file and its record.
        move: move the file instead of copying it; it must be on the same file system.
        read: reads the tensors of a metric-specific format; by default any usual checkpoint is read.

    Raises:
        UsageError: there is no such entry, or the folder cannot be written.
        MissingFileError: there is no such file.
        ModelError: it is not the official file, it contains no weights, or another file already exists.
    """
    weights = entry(name)
    source = Path(file).expanduser()
    if not source.exists():
        raise MissingFileError("there is no such file", path=source, hint=f"See 'capbench models list {name}'")
    digest = sha256_file(source)
    if weights.expected is not None and not digest.startswith(weights.expected):
        raise _wrong_file(source, weights.expected, digest, official=True)
    # Without an official checksum, the file must at least contain weights.
    difference = None if weights.expected is not None else _difference(weights, (read or _read_tensors)(source))
    target = weights.path
    size = source.stat().st_size
    with lock(target):
        if target.exists() and not replace:
            present = sha256_file(target)
            if present != digest:
                raise ModelError(
                    f"other weights already exist: SHA-256 {present}; the new file has {digest}",
                    code="exists",
                    value=present,
                    path=target,
                    hint="Use --replace to replace them",
                )
        elif not (target.exists() and target.samefile(source)):
            _put(source, target, move=move)
        for beside in (source.with_name(file) for file in weights.beside):
            if beside.is_file() and not (target.with_name(beside.name).exists() and not replace):
                _put(beside, target.with_name(beside.name), move=move)
        record: dict[str, Any] = {"name": name, "file": weights.file, "sha256": digest, "bytes": size}
        if weights.shapes:
            record["difference"] = difference
        write_text(_record_path(target), json.dumps(record, indent=2) + "\n")
    return status(name)


def has_address(weights: Entry) -> bool:
    """True if weights can be downloaded: their publisher offers an address."""
    return weights.url is not None


def how_to_install(weights: Entry) -> str:
    """The commands that install weights, for messages."""
    if has_address(weights):
        return f"Run 'capbench models download {weights.name}'"
    return f"'capbench models list {weights.name}' shows their source; then: capbench models add {weights.name} FILE"


def _put(source: Path, target: Path, *, move: bool) -> None:
    if move:
        os.replace(source, target)
        return
    with open(source, "rb") as stream, atomic_write(target, "wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)


def way_to(metric: str, made_by: str) -> str:
    """The shortest way to weights of a metric, for messages: installed, downloadable, of others, or trained here.

    Args:
        metric: name of the metric.
        made_by: the command that trains such weights.
    """
    fitting = [weights for weights in entries().values() if metric in weights.used_by]
    installed = next((weights.name for weights in fitting if weights.path.exists()), None)
    if installed is not None:
        return f"'{installed}' is installed: --model {metric}={installed}"
    ways = []
    if fitting:
        with_address = next(filter(has_address, fitting), None)
        first = with_address or fitting[0]
        steps = f" (all steps: {first.steps})" if first.steps else ""
        ways.append(f"'capbench models {'download' if with_address else 'list'} {first.name}'{steps}")
    if made_by:
        ways.append(f"'{made_by}'")
    return " or ".join(ways)


def find_weights(used_by: str) -> Path:
    """The weight file of a detector or metric: the first of its entries that is installed.

    Raises:
        ModelError: none is installed, or the installed one has a wrong checksum.
    """
    names = [name for name, weights in entries().items() if used_by in weights.used_by]
    names = names or [entry(used_by).name]
    for name in names:
        file = status(name)
        if file.state == "wrong":
            raise _wrong_file(Path(file.path), file.expected or "", file.sha256 or "", official=file.official)
        if file.state == "here":
            return Path(file.path)
    weights = entry(names[0])
    raise ModelError(
        f"the weights of '{used_by}' are not installed ({weights.file})",
        code="missing-weights",
        value=used_by,
        path=weights.path,
        hint=how_to_install(weights),
    )


@dataclass(frozen=True)
class _Kind:
    """Models of one kind.

    Attributes:
        noun: noun for one model.
        sample: file of the sample; None without a sample.
        command: command that creates one, or None.
    """

    noun: str
    sample: str | None
    command: str | None

    @property
    def sample_path(self) -> Path | None:
        """The sample, if this version includes one."""
        if self.sample is None:
            return None
        path = Path(str(importlib.resources.files("capbench.weights") / "sample" / self.sample))
        return path if path.exists() else None


_GROUNDING = _Kind("grounding model", "sample_scan.safetensors", "capbench train scan")
_BERT = _Kind("BERT-like model", None, None)  # a folder that others made
_KINDS = {
    "faier": _Kind("FAIEr model", "sample_faier.safetensors", "capbench train faier"),
    "vilbertscore": _Kind("ViLBERT", "sample_vilbert.safetensors", "capbench train vilbert"),
    "tiger": _GROUNDING,
    "reo": _GROUNDING,
    "clipscore": _Kind("CLIP", "sample_clip.safetensors", "capbench models add clip-vit-b32"),
    "pac-s": _Kind("CLIP of PAC-S", "sample_pac_s.safetensors", "capbench models add pac-s-vit-b32"),
    "leic": _Kind("network of LEIC", None, "capbench train leic"),
    "nneval": _Kind("network of NNEval", None, "capbench train nneval"),
    "bertscore": _BERT,
    "bert-tbr": _BERT,
}
"""By metric."""
# Of all metrics (""), or of a plug-in's, which may use grounding models.
_OTHER = _Kind("file of weights", _GROUNDING.sample, None)


def has_sample(metric: str) -> bool:
    """True if capbench includes a sample of a metric's model."""
    return metric in _KINDS and _KINDS[metric].sample_path is not None


def is_known(name: str) -> bool:
    """True if ``--model`` accepts this name: ``sample``, or one of ``capbench models list``."""
    return name == "sample" or name in entries()


def locate(model: str | os.PathLike[str], metric: str = "tiger") -> Path:
    """The file of a ``--model`` value: a path, ``sample`` for capbench's sample, or a name.

    Args:
        model: the value.
        metric: the metric; each kind of network has a separate sample.

    Raises:
        ModelError: there is no such file or name; the weights of that name are not installed or have a wrong checksum;
            or the file is an ensemble that is damaged or without one of its parts.
    """
    path = Path(model).expanduser()
    if os.path.exists(path):  # noqa: PTH110  Path.exists raises if a name is too long
        read_ensemble(path)
        return path
    kind = _KINDS.get(metric, _OTHER)
    text = os.fspath(model)
    if text == "sample":
        sample = kind.sample_path
        if sample is None:
            hint = f"Create one with '{kind.command}'" if kind.command else f"Pass a folder: --model {metric}=FOLDER"
            message = f"capbench includes no sample of a {kind.noun}"
            raise ModelError(message, code="missing-weights", value=text, hint=hint)
        return sample
    if not is_known(text):
        names = ["sample"] if kind.sample else []
        names += [name for name, weights in entries().items() if metric in weights.used_by]
        hint = f"Pass a file. {suggest(text, names)}"
        if path.suffix or path.name != text:  # a path, not a name
            hint = "Correct the path"
            if kind.command:
                hint += f", or create one with '{kind.command}' or 'capbench models combine'"
        raise ModelError(f"there is no such {kind.noun}", code="missing-weights", value=text, path=path, hint=hint)
    weights_status = status(text)
    if weights_status.state == "wrong":
        raise _wrong_file(
            Path(weights_status.path),
            weights_status.expected or "",
            weights_status.sha256 or "",
            official=weights_status.official,
        )
    if weights_status.state == "missing":
        raise ModelError(
            f"the weights '{text}' are not installed",
            code="missing-weights",
            value=text,
            path=weights_status.path,
            hint=how_to_install(entry(text)),
        )
    path = Path(weights_status.path)
    return path.parent if entry(text).is_folder else path

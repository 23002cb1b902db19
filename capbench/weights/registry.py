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

from pydantic import BaseModel, ConfigDict, Field

from capbench.core.errors import MissingFileError, ModelError, check_choice, suggest
from capbench.core.files import atomic_write, home_dir, lock, read_json, sha256_file, write_text
from capbench.core.typed_json import Strict, validated
from capbench.weights.ensembles import read_ensemble

if TYPE_CHECKING:
    import torch


class Entry(BaseModel):
    """Facts about one weight file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str = ""
    title: str
    used_by: tuple[str, ...] = Field(validation_alias="for", min_length=1)
    file: str = Field(pattern=r"^[\w.+-]+$")
    companions: tuple[str, ...] = ()
    page: str
    terms: str
    manual: str
    url: str | None = None
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    sha256_prefix: str | None = Field(default=None, pattern="^[0-9a-f]{8,63}$")
    sha256_observed: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    megabytes: int | None = None
    tensors: int | None = None
    shapes: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    note: str | None = None
    steps: str | None = None

    @property
    def expected(self) -> str | None:
        """The official SHA-256 or its first digits; None if unknown."""
        return self.sha256 or self.sha256_prefix

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
        return "config.json" in self.companions

    @property
    def missing_companions(self) -> tuple[str, ...]:
        """Files that belong next to the installed file and are missing."""
        return tuple(name for name in self.companions if not self.path.with_name(name).exists())


@dataclass(frozen=True)
class Status:
    """Installation status of an entry."""

    name: str  # name of the entry
    # ``here`` (installed and correct), ``missing``, or ``wrong`` (another checksum than the official or the
    # recorded one)
    state: Literal["here", "missing", "wrong"]
    path: str  # location of the file
    sha256: str | None  # SHA-256 of the installed file
    expected: str | None  # official digits, or else the digits recorded when the file was added
    official: bool  # True if ``expected`` is from the publisher
    remark: str | None = None  # warning about an accepted file, or None
    # True if its tensors have the number and shapes of the published file, False if not, None if they were not
    # compared
    fits: bool | None = None


class _Registry(Strict):
    schema_version: Literal[1] = Field(alias="schema")
    models: dict[str, Entry]


@functools.cache
def entries() -> dict[str, Entry]:
    """capbench's registry, by name."""
    from capbench.core.yaml import parse_own

    text = importlib.resources.files("capbench.weights").joinpath("registry.yaml").read_text(encoding="utf-8")
    models = validated(_Registry, parse_own(text), "registry.yaml").models
    return {name: entry.model_copy(update={"name": name}) for name, entry in models.items()}


def entry(name: str) -> Entry:
    """An entry by its name, from torchvision for ``grid:BACKBONE``. Raises UsageError with the choices."""
    if name.startswith("grid:"):
        return _grid_entry(name)
    check_choice("model", name, [*entries(), "grid:BACKBONE"])
    return entries()[name]


@functools.cache
def _grid_entry(name: str) -> Entry:
    from torchvision import models

    backbone = name.partition(":")[2]
    check_choice("backbone", backbone, models.list_models(module=models))
    weights = models.get_model_weights(backbone).DEFAULT
    file = str(weights.url).rsplit("/", 1)[-1]
    digits = re.search(r"-([0-9a-f]{8,})\.pth$", file)
    size = weights.meta.get("_file_size")
    terms = (
        "torchvision's code is under the BSD 3-clause licence; according to its README, terms for the weights may "
        "derive from the training data: ImageNet (non-commercial research and education)"
    )
    if "license" in weights.meta:  # the SWAG weights; torchvision names no licence for others
        terms = f"CC BY-NC 4.0 according to torchvision's README ({weights.meta['license']})"
    return Entry(
        name=name,
        title=f"{backbone} of torchvision ({weights.name}), for grid features",
        used_by=(name,),
        file=file,
        page="https://docs.pytorch.org/vision/stable/models.html",
        url=weights.url,
        sha256_prefix=digits.group(1) if digits else None,
        megabytes=round(size) if size else None,
        terms=terms,
        manual="Download the file from its address",
    )


def models_dir() -> Path:
    """The folder of weight files: ``$CAPBENCH_MODELS``, or ``models`` in ``$CAPBENCH_HOME`` or the user data folder."""
    folder = os.environ.get("CAPBENCH_MODELS")
    return Path(folder).expanduser() if folder else home_dir() / "models"


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + ".record.json")


class _Record(BaseModel):
    """The record from when a file was added; ``difference`` is that of its tensors, if they were compared."""

    sha256: str | None = Field(pattern="^[0-9a-f]{64}$")
    difference: str | None = None

    @classmethod
    def of(cls, path: Path) -> _Record:
        """The record of a file; an empty one without a record."""
        record = _record_path(path)
        hint = "Remove the record and add the weights again"
        raw = read_json(record) if record.exists() else {"sha256": None}
        return validated(cls, raw, record, code="damaged", hint=hint)


def status(name: str) -> Status:
    """Installation status of an entry; reads an installed file to compare its checksum."""
    weights = entry(name)
    path = weights.path
    record = _Record.of(path)
    expected = weights.expected or record.sha256
    official = weights.expected is not None
    if not path.exists():
        return Status(name, "missing", str(path), None, weights.expected, official)
    digest = sha256_file(path)
    right = expected is None or digest.startswith(expected)
    compared = "difference" in record.model_fields_set and record.sha256 == digest
    fits = record.difference is None if compared else None
    remark = _remark(weights, digest, record.difference if compared else None)
    return Status(name, "here" if right else "wrong", str(path), digest, expected, official, remark, fits)


def _remark(weights: Entry, digest: str, difference: str | None) -> str | None:
    remarks = []
    if difference is not None:
        remarks.append(f"its tensors are not those of the published {weights.file}: {difference}")
    if (observed := weights.sha256_observed) not in (None, digest):
        which = f"the copies of {weights.file} that others report ({observed})"
        remarks.append(f"its SHA-256 is not that of {which}: it may be another revision or form, or other weights")
    if weights.is_folder and (absent := weights.missing_companions):
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


def _wrong_file(
    path: str | os.PathLike[str], expected: str | None, actual: str | None, *, official: bool
) -> ModelError:
    source = "official" if official else "recorded when it was added"
    message = f"these are other weights: expected SHA-256 {expected}, {source}; found {actual}"
    hint = "Download the file again from its official source"
    return ModelError(message, code="wrong-weights", value=actual, path=path, hint=hint)


def other_weights(path: str | os.PathLike[str], present: str | None, wanted: str) -> ModelError:
    """The error for installed weights that other ones would replace."""
    message, hint = f"other weights already exist: SHA-256 {present}; {wanted}", "Use --replace to replace them"
    return ModelError(message, code="exists", value=present, path=path, hint=hint)


def _installed(status: Status) -> Path:
    """The file of installed weights. Raises ModelError if it is missing or has another checksum."""
    if status.state == "wrong":
        raise _wrong_file(status.path, status.expected, status.sha256, official=status.official)
    if status.state == "missing":
        name, hint = status.name, f"Run 'capbench models download {status.name}'"
        if entry(name).url is None:
            hint = f"'capbench models list {name}' shows their source; then: capbench models add {name} FILE"
        message = f"the weights '{name}' are not installed"
        raise ModelError(message, code="missing-weights", value=name, path=status.path, hint=hint)
    return Path(status.path)


def add(
    name: str,
    file: str | os.PathLike[str],
    *,
    replace: bool = False,
    # reads the tensors of a metric-specific format; by default any usual checkpoint is read
    read: Callable[[Path], Mapping[str, torch.Tensor]] | None = None,
) -> Status:
    """Check and install a weight file; other tensors than those of the entry are only remarked on in the status."""
    weights = entry(name)
    source = Path(file).expanduser()
    if not source.exists():
        raise MissingFileError("there is no such file", path=source, hint=f"See 'capbench models list {name}'")
    digest = sha256_file(source)
    if weights.expected is not None and not digest.startswith(weights.expected):
        raise _wrong_file(str(source), weights.expected, digest, official=True)
    difference = None
    if weights.expected is None:  # the file must at least contain weights
        from capbench.weights.checkpoints import read_checkpoint

        difference = _difference(weights, read(source) if read else read_checkpoint(source).tensors)
    target = weights.path
    size = source.stat().st_size
    with lock(target):
        if target.exists() and not replace:
            present = sha256_file(target)
            if present != digest:
                raise other_weights(target, present, f"the new file has {digest}")
        elif not (target.exists() and target.samefile(source)):
            _copy(source, target)
        for companion in (source.with_name(file) for file in weights.companions):
            if companion.is_file() and not (target.with_name(companion.name).exists() and not replace):
                _copy(companion, target.with_name(companion.name))
        record: dict[str, Any] = {"name": name, "file": weights.file, "sha256": digest, "bytes": size}
        if weights.shapes:
            record["difference"] = difference
        write_text(_record_path(target), json.dumps(record, indent=2) + "\n")
    return status(name)


def _copy(source: Path, target: Path) -> None:
    with open(source, "rb") as stream, atomic_write(target, "wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)


def way_to(metric: str, made_by: str) -> str:
    """The shortest way to weights of a metric, for messages: installed, downloadable, of others, or trained here."""
    fitting = [weights for weights in entries().values() if metric in weights.used_by]
    installed = next((weights.name for weights in fitting if weights.path.exists()), None)
    if installed is not None:
        return f"'{installed}' is installed: --model {metric}={installed}"
    ways = []
    if fitting:
        first = min(fitting, key=lambda weights: weights.url is None)
        steps = f" (all steps: {first.steps})" if first.steps else ""
        ways.append(f"'capbench models {'download' if first.url else 'list'} {first.name}'{steps}")
    if made_by:
        ways.append(f"'{made_by}'")
    return " or ".join(ways)


def find_weights(used_by: str) -> Path:
    """The weight file of a detector or metric: the first of its entries that is installed."""
    names = [name for name, weights in entries().items() if used_by in weights.used_by]
    names = names or [entry(used_by).name]
    states = [status(name) for name in names]
    return _installed(next((state for state in states if state.state != "missing"), states[0]))


_GROUNDING = "sample_scan.safetensors"
_SAMPLES: dict[str, str | None] = {
    "faier": "sample_faier.safetensors",
    "vilbertscore": "sample_vilbert.safetensors",
    "tiger": _GROUNDING,
    "reo": _GROUNDING,
    **dict.fromkeys(("clipscore", "pac-s", "leic", "nneval", "bertscore", "bert-tbr")),
}
"""Metric → file of its sample; metrics of plug-ins may use grounding models."""


def has_sample(metric: str) -> bool:
    """True if capbench includes a sample of a metric's model."""
    return _SAMPLES.get(metric) is not None


def is_known(name: str) -> bool:
    """True if ``--model`` accepts this name: ``sample``, or one of ``capbench models list``."""
    return name == "sample" or name in entries()


def locate(model: str | os.PathLike[str], metric: str = "tiger") -> Path:
    """The file of a ``--model`` value: a path, ``sample`` for capbench's sample, or a name."""
    path = Path(model).expanduser()
    if os.path.exists(path):  # noqa: PTH110  Path.exists raises if a name is too long
        read_ensemble(path)
        return path
    text, sample = os.fspath(model), _SAMPLES.get(metric, _GROUNDING)
    if text == "sample":
        if sample is None:
            message, hint = f"capbench includes no sample of a model for {metric}", "Pass a file or folder"
            raise ModelError(message, code="missing-weights", value=text, hint=hint)
        return Path(__file__).parent / "sample" / sample
    if not is_known(text):
        names = ["sample"] if sample else []
        names += [name for name, weights in entries().items() if metric in weights.used_by]
        hint = f"Pass a file. {suggest(text, names)}"
        if path.suffix or path.name != text:  # a path, not a name
            hint = f"Correct the path, or get a model by {way_to(metric, '') or 'training one (capbench train)'}"
        message = f"there is no such model for {metric}" if metric else "there is no such model"
        raise ModelError(message, code="missing-weights", value=text, path=path, hint=hint)
    path = _installed(status(text))
    return path.parent if entry(text).is_folder else path

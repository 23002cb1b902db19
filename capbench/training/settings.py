"""Training files: the settings that all trainings share, and the reader of the YAML.

A section with other defaults in a subclass is written as ``optimiser: OptimiserOptions = OptimiserOptions(lr=0.01)``;
keys that the file omits keep these defaults. ``network`` may be an :class:`~capbench.core.options.Options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_serializer, field_validator, model_validator

from capbench.core.errors import StudyError, UsageError
from capbench.core.options import Options
from capbench.core.yaml import parse_value, read_yaml

Text = Annotated[str, Field(pattern=r"\S")]
Number = Annotated[float, Field(ge=0, le=1e30)]
Positive = Annotated[float, Field(gt=0, le=1e30)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Whole = Annotated[int, Field(ge=0, lt=2**32)]
Count = Annotated[int, Field(ge=1, lt=2**53)]
AtLeast2 = Annotated[int, Field(ge=2)]
as_tuple = BeforeValidator(lambda raw: (raw,) if isinstance(raw, str) else tuple(raw) if isinstance(raw, list) else raw)
Names = Annotated[tuple[Text, ...], as_tuple, Field(min_length=1)]  # A name or a list of names


class Section(BaseModel):
    """A part of a training file; a subsection that the file gives in part keeps its default's other values."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _complete(cls, raw: Any, info: Any) -> Any:
        default = cls.model_fields[info.field_name].default
        if not isinstance(raw, Mapping) or not isinstance(default, Section | Options):
            return raw
        if isinstance(default, Section):
            return {**dict(default), **raw}
        problems, known = [f"'{key}' is determined by the data" for key in raw if key in cls.measured], dict[str, Any]()
        for key, value in raw.items():
            try:
                known |= default.checked(info.field_name, {key: value})
            except UsageError as error:
                problems.append(str(error))
        if not problems:
            try:
                return replace(default, **known)
            except UsageError as error:  # options that contradict each other
                problems.append(f"{info.field_name}: {error}")
        raise ValueError("; ".join(problems))

    measured: ClassVar[tuple[str, ...]] = ()  # Options of a network that follow from the data, which no file contains


class OptimiserOptions(Section):
    """Adam (Kingma and Ba 2015), its learning rate, and clipping of gradients."""

    lr: Positive = 1e-3
    lr_update: Count | None = None  # epochs between divisions of the learning rate by ten; null: never
    warmup: Whole = 0  # first steps, over which the learning rate rises linearly from zero
    clip: Positive | None = 2.0  # maximum norm of all gradients together; null: no limit
    weight_decay: Number = 0.0  # L2 penalty

    def share(self, epoch: int) -> float:
        """Factor of the learning rate in an epoch, counted from 0."""
        return 1.0 if self.lr_update is None else 0.1 ** (epoch // self.lr_update)


class EvaluationOptions(Section):
    """Evaluations on the dev set, and the sample of its images."""

    every: Count | None = None  # steps between evaluations; null: one at the end of each epoch
    patience: Count | None = None  # evaluations without improvement after which training stops; null: no limit
    images: Count | None = None  # number of dev images, a sample; null: all


class Training(Section):
    """Settings of all trainings."""

    unchecked: ClassVar[tuple[str, ...]] = ("name", "threads", "device", "log_every", "checkpoint_seconds")
    """Settings that may differ between the parts of one run: they change no weights, or only their last digits."""

    schema_: Literal[1] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")]  # of the run folder
    optimiser: OptimiserOptions = OptimiserOptions()
    evaluation: EvaluationOptions = EvaluationOptions()
    epochs: Count = 30
    max_steps: Count | None = None  # also within an epoch; null: no limit
    ema: Fraction | None = None  # decay of the average of the weights, which is evaluated and saved; null: no average
    select: Literal["best", "last"] = "best"  # the weights to save
    seed: Whole = 1
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None  # of torch on a CPU; null: torch's default
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    log_every: Count = 20  # steps between lines of the log
    checkpoint_seconds: Positive = 300.0  # maximum time between checkpoints

    def contradictions(self) -> Iterable[str]:
        """Settings that contradict each other or do nothing, one line each."""
        return ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = list(self.contradictions())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @field_serializer("network", check_fields=False)
    def _network(self, network: Any) -> dict[str, Any]:
        options = asdict(network) if isinstance(network, Options) else network.model_dump(mode="json")
        return {key: value for key, value in options.items() if key not in self.measured}

    @classmethod
    def load(cls, path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Self:
        """Read a training file; ``changes`` are ``key=value`` with dotted keys, which override it.

        Raises StudyError for a file or change that cannot be read, and pydantic's ValidationError for wrong settings.
        """
        raw = read_yaml(path, "a training file (a mapping with 'schema' and 'name')")
        for change in changes:
            key, equals, text = change.partition("=")
            *sections, last = key.strip().split(".")
            place = raw
            for section in sections:
                place = place.setdefault(section, {}) if isinstance(place, dict) else None
            try:
                if not equals or not isinstance(place, dict):
                    raise ValueError
                place[last] = parse_value(text)
            except ValueError as error:
                message, hint = f"'{change}' is not a change of a setting", "Example: optimiser.lr=0.001"
                raise StudyError(message, code="wrong-format", value=change, path=path, hint=hint) from error
        return cls.model_validate({str(key): value for key, value in raw.items()})

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON values, with all defaults."""
        return self.model_dump(mode="json", by_alias=True)

    def deciding(self) -> dict[str, Any]:
        """The settings that determine the result, with dotted keys (``loss.kind``)."""
        return flat({key: value for key, value in self.to_dict().items() if key not in self.unchecked})


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert nested mappings to one mapping with dotted keys."""
    parts = (flat(v, f"{prefix}{k}.") if isinstance(v, Mapping) else {f"{prefix}{k}": v} for k, v in nested.items())
    return {key: value for part in parts for key, value in part.items()}

"""Reading of training files: found by name, changed by ``--set``, and checked as a whole."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from capbench.errors import CapbenchError, StudyError, suggest
from capbench.models.scan.network import ScanOptions
from capbench.training.scan.config import SCHEMA_VERSION, ScanTraining, number
from capbench.yaml_files import parse_value, read_yaml

__all__ = ["find_training", "load_training", "parse_training", "read_training"]


def find_training(name: str) -> Path:
    """The path of a training file: as given, or one that comes with capbench by its name.

    Raises:
        StudyError: there is neither; the shipped ones are listed.
    """
    from capbench.studies.config import shipped_configs

    path = Path(name)
    if path.is_file():
        return path
    shipped = {p.stem: p for p in sorted((shipped_configs() / "train").glob("*.yaml"))}
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs/train")):
        return shipped[path.stem]
    raise StudyError("there is no such training file", path=name, hint=suggest(path.stem, list(shipped)))


def read_training(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The raw mapping of a training file. Raises StudyError if it is not YAML or no mapping."""
    return read_yaml(path, "training: a mapping with 'schema', 'name', 'captions', 'features'")


def load_training(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> ScanTraining:
    """Read and check a training file.

    Args:
        path: the YAML file.
        changes: ``key=value`` with dotted keys (``loss.temperature=0.2``), which replace what the file says.

    Raises:
        StudyError: every problem at once.
    """
    raw = read_training(path)
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise StudyError(f"'{change}' is not of the form key=value", hint="Example: loss.temperature=0.2")
        try:
            value = parse_value(text)
        except ValueError as error:
            raise StudyError(f"'{change}': the value cannot be read", hint="Put it in quotes") from error
        *sections, last = key.strip().split(".")
        place = raw
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                raise StudyError(
                    f"'{change}': '{section}' has no keys", path=path, hint="Example: loss.temperature=0.2"
                )
            place = inner
        place[last] = value
    return parse_training(raw, path)


def parse_training(raw: Mapping[str, Any], path: str | os.PathLike[str] | None = None) -> ScanTraining:
    """Check a raw mapping. Raises StudyError with every problem at once."""
    problems: list[str] = []
    config: ScanTraining | None = None
    try:
        config = ScanTraining.model_validate(raw)
    except ValidationError as error:
        problems += [_problem(one, raw) for one in error.errors(include_url=False)]
    network = raw.get("network")
    if isinstance(network, Mapping):
        problems += _network_problems(network)
    if config is not None:
        problems += _contradictions(config)
    if problems:
        listed = "; ".join(f"({i}) {problem}" for i, problem in enumerate(problems, 1))
        raise StudyError(problems[0] if len(problems) == 1 else f"{len(problems)} problems: {listed}", path=path)
    assert config is not None
    return config


def _network_problems(network: Mapping[Any, Any]) -> list[str]:
    decided = ("vocabulary_size", "image_dim")
    kinds = {field.name: field for field in dataclasses.fields(ScanOptions)}
    choices = [name for name in kinds if name not in decided]
    problems = []
    good: dict[str, Any] = {}
    for key, value in network.items():
        if key in decided:
            problems.append(f"'network.{key}' is decided by the data. Remove it")
        elif key not in choices:
            problems.append(f"unknown key 'network.{key}'. {suggest(str(key), choices)}")
        else:
            good[key] = number(value)
    for key, value in good.items():
        default = kinds[key].default
        if isinstance(default, bool) != isinstance(value, bool) or (
            isinstance(default, int | float) and not isinstance(value, int | float)
        ):
            problems.append(f"'network.{key}' is {value!r}, where something like {default!r} is wanted")
    if not problems:
        try:
            ScanOptions(**{"vocabulary_size": 5, "image_dim": 1, **good})
        except (CapbenchError, TypeError, ValueError) as error:
            problems.append(f"'network': {error}")
    return problems


def _contradictions(config: ScanTraining) -> list[str]:
    other = {"hinge": ("temperature",), "info-nce": ("margin", "hardest", "hardest_after", "reduction")}
    # A default may stand there: a run's own record of its settings writes all of them out.
    idle = [key for key in other[config.loss.kind] if getattr(config.loss, key) != _default(config.loss, key)]
    problems = [f"'loss.{key}' does nothing where 'loss.kind' is {config.loss.kind}" for key in idle]
    if config.vocabulary.file and config.vocabulary.min_count != _default(config.vocabulary, "min_count"):
        problems.append("'vocabulary.min_count' does nothing where 'vocabulary.file' is given")
    if config.loss.hardest_after and not config.loss.hardest:
        problems.append("'loss.hardest_after' does nothing without 'loss.hardest: true'")
    return problems


def _default(section: BaseModel, key: str) -> object:
    return type(section).model_fields[key].default


def _problem(error: Any, raw: Mapping[str, Any]) -> str:
    place = [part for part in error["loc"] if isinstance(part, str) and not part.startswith(("function-", "tuple["))]
    key = ".".join(place)
    if error["type"] == "extra_forbidden":
        return f"unknown key '{key}'. {suggest(place[-1], _known(place[:-1]))}"
    if error["type"] == "invalid_key":
        return f"the key {error['input']!r} is no text"
    if error["type"] == "string_too_short":
        return f"'{key}' is empty"
    if error["type"] == "missing":
        return f"the key '{key}' is missing"
    if key == "schema":
        return f"'schema' is {raw.get('schema')!r}; this version reads schema {SCHEMA_VERSION}"
    text = str(error["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch":
        text = (
            "should be auto, cpu, cuda or cuda:N" if key == "device" else "should be letters, digits, '-', '_' and '.'"
        )
    return f"'{key}' is {error['input']!r}: {text}"


def _known(place: Sequence[str]) -> list[str]:
    model: type[BaseModel] = ScanTraining
    for part in place:
        annotation = model.model_fields[part].annotation
        kinds = [kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type)]
        model = next(kind for kind in kinds if issubclass(kind, BaseModel))
    return [field.alias or name for name, field in model.model_fields.items()]

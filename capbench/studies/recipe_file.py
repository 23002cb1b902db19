"""Reads recipe files: YAML to a :class:`Recipe`. Every problem is reported at once.

Schema version 1::

    schema: 1
    name: dual-encoder-flickr8k
    title: A dual encoder on Flickr8k      # optional
    takes: 3 minutes on one core           # optional: shown before the run
    data: [flickr8k/Flickr8k.token.txt]    # files of the data folder; checked before anything starts
    sets: {expert: flickr8k-expert}        # optional: name: data set or protocol
    steps:                                 # name: {KIND: …, options}; a step names earlier steps by their names
      cells: {import: flickr8k/mobilenetv2_grid49_pca256_int8.npz, detector: mobilenetv2-grid-pca256}
      pyr30: {pool: cells, windows: pyr30}
      networks: {train: clip, config: dual-encoder-flickr8k, features: pyr30, seeds: [1, 2, 3]}
      ensemble: {ensemble: networks, of: 3}
      "{set}-scores": {score: dual-encoder, judgements: "{judgements}", features: pyr30, model: networks}
      "{set}": {evaluate: "{judgements}", coefficients: [tau-c], values: [{scores: "{set}-scores"}]}
      results: {results: results.json, parts: {expert: expert}}

A step with ``{set}`` in its name is repeated for each entry of ``sets``: ``{set}`` is its name, ``{judgements}`` its
protocol and ``{dataset}`` the data set of this protocol. The key that names a kind of :data:`KINDS` is the step's kind.
A kind is a subclass of :class:`Step`: its fields are the options, its method ``plan`` adds tasks to a plan
(:mod:`capbench.studies.recipe`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from capbench.core.errors import StudyError, suggest
from capbench.core.yaml import parse_value, read_yaml, shipped_configs
from capbench.studies.recipe import Entry, Recipe, Step
from capbench.studies.study import Problems, Study

KINDS = {
    "files": "capbench.studies.recipe_steps:FilesStep",
    "import": "capbench.studies.recipe_steps:ImportStep",
    "pool": "capbench.studies.recipe_steps:PoolStep",
    "train": "capbench.studies.recipe_steps:TrainStep",
    "ensemble": "capbench.studies.recipe_steps:EnsembleStep",
    "vectors": "capbench.studies.recipe_nneval:VectorsStep",
    "merge": "capbench.studies.recipe_grounding:MergeStep",
    "covariance": "capbench.studies.recipe_grounding:CovarianceStep",
    "recall": "capbench.studies.recipe_grounding:RecallStep",
    "score": "capbench.studies.recipe_scores:ScoreStep",
    "tiger-options": "capbench.studies.recipe_grounding:TigerOptionsStep",
    "grounding-analysis": "capbench.studies.recipe_grounding:GroundingAnalysisStep",
    "nneval-facts": "capbench.studies.recipe_nneval:NetworkFactsStep",
    "nneval-inputs": "capbench.studies.recipe_nneval:InputsStep",
    "nneval-held-out": "capbench.studies.recipe_nneval:HeldOutStep",
    "submissions": "capbench.studies.recipe_steps:SubmissionsStep",
    "combine": "capbench.studies.recipe_steps:CombineStep",
    "select": "capbench.studies.recipe_steps:SelectStep",
    "evaluate": "capbench.studies.recipe_scores:EvaluateStep",
    "results": "capbench.studies.recipe_scores:ResultsStep",
    "faier-words": "capbench.studies.recipe_grounding:FaierWordsStep",
    "analyse": "capbench.studies.recipe_grounding:AnalyseStep",
}
"""Kinds of steps: key in the file → ``module:class``; a class is imported when a file uses it."""

_Text = Annotated[str, Field(pattern=r"\S")]


class _File(Entry):
    schema_: Literal[1] = Field(alias="schema")
    name: _Text
    title: str = ""
    takes: str = ""
    data: list[_Text] = Field([])
    sets: dict[_Text, _Text] = Field({})
    steps: Annotated[dict[_Text, dict[str, Any]], Field(min_length=1)]


def shipped_recipes() -> dict[str, Path]:
    """The recipes of capbench, by name."""
    return {path.stem: path for path in sorted((shipped_configs() / "recipes").glob("*.yaml"))}


def find_recipe(name: str) -> Path:
    """The path of a recipe: the path itself, or the path of a shipped one by its name.

    Raises:
        StudyError: there is neither; the error lists the nearest names.
    """
    path, shipped = Path(name), shipped_recipes()
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises for a folder without read permission
        return path
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs/recipes")):
        return shipped[path.stem]
    hint = suggest(path.stem, list(shipped))
    raise StudyError("there is no such recipe", code="unknown-name", value=name, path=name, hint=hint)


def is_study(path: str | os.PathLike[str]) -> bool:
    """True if a file is a study, which has no steps."""
    return "steps" not in read_yaml(path, "recipe: a mapping with 'schema', 'name' and 'steps'")


def load_recipe(path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Recipe:
    """Read a recipe file.

    Args:
        path: the file.
        changes: ``STEP.key=value`` changes of options; those of other names than steps' are ignored.

    Raises:
        StudyError: it is not YAML, or keys are unknown, missing or of the wrong type: all problems at once.
    """
    raw = read_yaml(path, "recipe: a mapping with 'schema', 'name' and 'steps'")
    return parse_recipe({str(key): value for key, value in raw.items()}, path, changes)


def parse_recipe(raw: Mapping[str, Any], path: str | os.PathLike[str], changes: Sequence[str] = ()) -> Recipe:
    """Check a raw mapping; see :func:`load_recipe`."""
    problems = Problems(path)
    steps: dict[str, Step] = {}
    file = None
    try:
        file = _File.model_validate(dict(raw))
    except ValidationError as error:
        _report(error, problems, "", list(_keys(_File)))
    for name, options in _repeated(file) if file else ():
        given = dict(options)
        for change in changes:
            _apply(given, change, name, problems)
        kind = next((key for key in given if key in KINDS), None)
        if kind is None:
            nearest = suggest(str(next(iter(given), "")), list(KINDS))
            message = f"step '{name}' has no kind: one of {', '.join(KINDS)}. {nearest}"
            problems.add(message, "missing-key", name)
            continue
        cls = _step_class(kind)
        try:
            steps[name] = cls.model_validate(given)
        except ValidationError as error:
            _report(error, problems, f"step '{name}': ", list(_keys(cls)))
    problems.raise_if_any()
    assert file is not None
    return Recipe(
        name=file.name,
        title=file.title or file.name,
        takes=file.takes,
        data=tuple(file.data),
        steps=steps,
        path=os.fspath(path),
        changes=tuple(change for change in changes if _owner(change) in steps),
    )


def _repeated(file: _File) -> Iterator[tuple[str, dict[str, Any]]]:
    """All steps; those with ``{set}`` in their names are repeated for each set."""
    for name, options in file.steps.items():
        if "{set}" not in name:
            yield name, options
            continue
        for label, judgements in file.sets.items():
            yield name.replace("{set}", label), _with_set(options, label, judgements)


def _with_set(value: Any, label: str, judgements: str) -> Any:
    if isinstance(value, str):
        dataset = judgements.partition("/")[0]
        return value.replace("{set}", label).replace("{judgements}", judgements).replace("{dataset}", dataset)
    if isinstance(value, dict):
        return {key: _with_set(inner, label, judgements) for key, inner in value.items()}
    return [_with_set(inner, label, judgements) for inner in value] if isinstance(value, list) else value


def recipe_of_study(study: Study, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of a study's ``train``: features, networks, and an ensemble of several networks.

    Raises:
        StudyError: the study has no ``train``, or a change does not fit.
    """
    path, train = study.path or study.name, study.train
    if train is None:
        raise StudyError(
            "is a study without 'train'", code="missing-key", path=path, hint=f"Evaluate it: capbench correlate {path}"
        )
    networks: dict[str, Any] = {"train": train.network, "config": train.config, "seeds": list(train.seeds)}
    steps: dict[str, Any] = {}
    if isinstance(train.features, str):
        steps["features"] = {"files": str(Path(train.features).absolute())}
    elif train.features is not None:
        imported = {key: train.features[key] for key in ("import", "detector")}
        steps["features" if "windows" not in train.features else "cells"] = imported
        if "windows" in train.features:
            steps["features"] = {"pool": "cells", "windows": train.features["windows"]}
    given = {"features": "features"} if steps else {}
    steps["networks"] = {**networks, **given, "settings": dict(train.settings)}
    if train.ensemble and len(train.seeds) > 1:
        steps["ensemble"] = {"ensemble": "networks", "file": "ensemble.json"}
    raw = {"schema": 1, "name": study.name, "title": study.title, "steps": steps}
    return parse_recipe(raw, path, changes)


def _step_class(kind: str) -> type[Step]:
    module, _, name = KINDS[kind].partition(":")
    cls: type[Step] = getattr(import_module(module), name)
    return cls


def _keys(model: type[BaseModel]) -> dict[str, None]:
    return {field.alias or name: None for name, field in model.model_fields.items()}


def _owner(change: str) -> str:
    """The step that a change names, or the section of a training's settings: all before the first point."""
    return change.partition("=")[0].strip().partition(".")[0]


def _apply(options: dict[str, Any], change: str, step: str, problems: Problems) -> None:
    """Apply ``STEP.key=value`` to the options of the step."""
    key, equals, text = change.partition("=")
    if _owner(change) != step:
        return
    _, *sections = key.strip().split(".")
    if not equals or not sections:
        message = f"'{change}' does not have the form STEP.key=value. Example: networks.seeds=[1]"
        problems.add(message, "wrong-format", change)
        return
    try:
        value = parse_value(text)
    except ValueError:
        problems.add(f"'{change}': the value cannot be read. Put it in quotes", "wrong-format", change)
        return
    target = options
    for section in sections[:-1]:
        target[section] = dict(target.get(section) or {})
        target = target[section]
    target[sections[-1]] = value


def _report(error: ValidationError, problems: Problems, where: str, known: list[str]) -> None:
    """Add pydantic's findings as messages: the key, the value, the remedy."""
    for details in error.errors(include_url=False):
        place, kind = [str(part) for part in details["loc"]], details["type"]
        key = ".".join(place)
        if kind == "missing":
            problems.add(f"{where}the key '{key}' is missing", "missing-key", key)
        elif kind == "extra_forbidden":
            hint = suggest(place[-1], known) if len(place) == 1 else "Remove it"
            problems.add(f"{where}unknown key '{key}'. {hint}", "unknown-key", key)
        elif kind == "value_error":
            problems.add(f"{where}{key}: {details['ctx']['error']}", "wrong-value", key)
        else:
            problems.add(f"{where}'{key}': {details['msg']}, not {details['input']!r}", "wrong-type", key)

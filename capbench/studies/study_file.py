"""Reads study files: YAML to a :class:`~capbench.studies.study.Study`, whose fields are the keys of a file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from capbench.core.errors import suggest
from capbench.core.yaml import read_yaml
from capbench.metrics.from_file import ScoresEntry
from capbench.studies.study import NO_KEYS, TASKS, Problems, Study

SCHEMA_VERSION = 1
_KEYS = tuple(entry.name for entry in fields(Study) if entry.name not in NO_KEYS)


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a study file and check its format. Raises StudyError with all problems at once."""
    raw = read_yaml(path, "a study (a mapping with 'schema', 'name', 'protocols', 'metrics')")
    given = {str(key): value for key, value in raw.items()}
    problems = Problems(path)
    version = given.pop("schema", None)
    if version != SCHEMA_VERSION or isinstance(version, bool):
        message = f"'schema' is {version!r}; this version reads schema {SCHEMA_VERSION}: "
        problems.add(f"{message}write 'schema: {SCHEMA_VERSION}'", "wrong-version", version)
    for key in [key for key in given if key not in _KEYS]:
        del given[key]
        problems.add(f"unknown key '{key}'. {suggest(key, [*_KEYS])}", "unknown-key", key)
    values = _fields(given, problems)
    _check_keys(given, values["metrics"], problems)
    study = None
    try:
        study = TypeAdapter(Study).validate_python({**values, "path": os.fspath(path)})
    except ValidationError as error:
        problems.add_invalid(error, Study)
    problems.raise_if_any()
    assert study is not None
    return study


def study_schema() -> dict[str, Any]:
    """The JSON schema of study files, for editors."""
    definitions = TypeAdapter(Study).json_schema()["$defs"]
    declared = definitions.pop("Study")["properties"]
    version = {"const": SCHEMA_VERSION, "description": "version of the format of study files"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A capbench study",
        "type": "object",
        "properties": {"schema": version, **{key: declared[key] for key in _KEYS}},
        "required": ["schema", "name"],
        "additionalProperties": False,
        "$defs": definitions,
    }


# Forms of a file that are shorter than a study's fields.


def _fields(given: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    made = {key: value for key, value in given.items() if value is not None}
    for key, of_owner in (("features", "features_of"), ("models", "model")):
        paths = made.get(key)
        if isinstance(paths, dict) != (key == "models") and key in made:
            made[of_owner] = made.pop(key)
    bootstrap, compare = made.get("bootstrap"), made.get("compare")
    if isinstance(bootstrap, int) and not isinstance(bootstrap, bool):
        made["bootstrap"] = bootstrap = {"resamples": bootstrap}
    if isinstance(compare, str):
        made["compare"] = compare = {"test": compare}
    if isinstance(bootstrap, dict) and isinstance(compare, dict):
        shared = {key: bootstrap[key] for key in ("unit", "seed") if key in bootstrap}
        made["compare"] = {**shared, **compare}
    metrics = []
    for entry in _list(made.pop("metrics", ())):
        try:
            metrics.append(_metric(entry, made))
        except ValueError as error:
            problems.add(str(error), "wrong-value", entry if isinstance(entry, str | int | float) else None)
    made["metrics"] = tuple(metrics)
    made["scores"] = tuple(_scores(entry, problems) for entry in _list(made.get("scores", ())))
    return made


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _metric(entry: Any, made: dict[str, Any]) -> str:
    """``LABEL=NAME`` of a metric; adds its options, title, features and model by label to the fields of the study."""
    if isinstance(entry, str) and entry.strip():
        return entry
    if isinstance(entry, dict) and ("label" in entry or "metric" in entry):
        texts = {key: entry[key] for key in ("label", "metric", "title", "features", "model") if key in entry}
        if not {"label", "metric"} <= texts.keys() or not all(isinstance(t, str) and t.strip() for t in texts.values()):
            raise ValueError(f"the metric entry {entry!r} should have a 'label' and a 'metric', and only texts")
        label = texts["label"]
        options = {str(key): value for key, value in entry.items() if key not in texts}
        for key, of_label in (("title", "titles"), ("features", "features_of"), ("model", "models")):
            if key in texts:
                made[of_label] = {**made.get(of_label, {}), label: texts[key]}
        made["options"] = {**made.get("options", {}), label: options}
        return f"{label}={texts['metric']}"
    if isinstance(entry, dict) and len(entry) == 1:
        ((name, options),) = entry.items()
        if isinstance(name, str) and isinstance(options, dict):
            named = {str(key): value for key, value in options.items()}
            made["options"] = {**made.get("options", {}), name.partition("=")[0]: named}
            return name
    raise ValueError(f"the metric entry {entry!r} should be a name, or 'name: {{option: value}}'")


def _scores(entry: Any, problems: Problems) -> ScoresEntry:
    keys = {"file": entry} if isinstance(entry, str) else entry
    texts = {key: keys.get(key, "") for key in ("file", "label", "title")} if isinstance(keys, dict) else {}
    if not texts.get("file") or not all(isinstance(text, str) for text in texts.values()):
        message = f"the entry {entry!r} of 'scores' should be a path, or a mapping with 'file', 'label' and 'title'"
        problems.add(message, "wrong-type", "scores")
        return ScoresEntry("")
    options = {str(key): value for key, value in keys.items() if key not in texts}
    columns = options.get("columns")
    if isinstance(columns, list) and columns and all(isinstance(column, str) for column in columns):
        options["columns"] = ",".join(columns)
    return ScoresEntry(**texts, options=options)


# Keys that do not fit each other.


def _check_keys(given: Mapping[str, Any], metrics: Sequence[str], problems: Problems) -> None:
    tasks = [key for key in TASKS if key in given]
    for key in tasks:
        if given[key] is None:
            problems.add(f"'{key}' should be a mapping, not None", "wrong-type", key)
    if len(tasks) > 1:
        problems.add(f"a study has one of {' and '.join(map(repr, tasks))}", "conflict", tasks[1])
    printed_alone = given.get("published") is not None and not {"protocols", "metrics", *TASKS} & given.keys()
    on_judgements = not tasks or TASKS[tasks[0]].on_judgements
    if not on_judgements and "protocols" in given:
        message = "this study has no judgements and so no 'protocols'. Remove the key"
        problems.add(message, "conflict", "protocols")
    for key in ("protocols", "metrics") if on_judgements else ("metrics",):
        if not printed_alone and not given.get(key):
            problems.add(f"the key '{key}' is missing, a list with at least one entry", "missing-key", key)
    labels = Counter(name.partition("=")[0] for name in metrics)
    for name in metrics:
        label, _, of_label = name.partition("=")
        if labels[label] > 1:
            example = f"{{label: {label.split(':')[-1]}-2, metric: {of_label or name}}}"
            message = f"'{label}' occurs twice in 'metrics'. Give one of them a label: {example}"
            problems.add(message, "duplicate", label)

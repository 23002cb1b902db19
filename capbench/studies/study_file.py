"""Reads study files: YAML to a :class:`~capbench.studies.study.Study`. The pydantic model defines each key.

Schema version 1::

    schema: 1
    name: tiger-table1                # folder name of the results
    title: Caption-level correlation  # optional
    protocols:                        # dataset/items/statistic, or dataset for its default
      - composite/same-text-out/correctness-tau-c
      - flickr8k-expert
      - composite@8k                  # one group of a data set's items
    metrics:                          # names, or a name with options
      - bleu-4
      - cider: {df: coco-val}
      - {label: cider-images, metric: cider, df: images}   # the same metric again: its label names its row
    published: tiger-table1           # optional: a table to compare with
    scores:                           # optional: scores from elsewhere, every column of numbers a metric
      - fleur.csv
      - {file: clipscore.json, label: clips, columns: [clipscore], higher: better}
    features: features/composite.h5   # optional, region features; or by label or metric: {tiger: a.h5, faier: b.h5}
    models: {tiger: scan.pth.tar}     # optional, weights by label or metric
    images: pictures                  # optional: the folder of the pictures; default: the data set's image folders
    bootstrap: {resamples: 1000, unit: image, seed: 0, method: percentile, level: 0.95}   # optional: intervals
    compare: {test: permutation, correction: holm, alpha: 0.05, resamples: 10000, seed: 0} # optional
    human_ceiling: true               # optional: false omits the row of agreement between human raters
    sentinels: true                   # optional: rows of sentinels, and tests of the metrics against them
    retrieval: {captions: flickr8k}   # instead of protocols: another task (capbench.studies.study)
    combine: {of: [cider, spice], learner: ridge, folds: 10, inner_folds: 5, seed: 0}     # optional: combinations

A file that names a ``published`` table and has neither ``protocols`` nor ``metrics`` prints only that table, for tables
whose judgements are not public.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from capbench.core.errors import CapbenchError, StudyError, UsageError, suggest
from capbench.core.options import Declaration, Options
from capbench.core.yaml import read_yaml, shipped_configs
from capbench.metrics.from_file import FileScoresOptions, ScoresEntry
from capbench.studies.study import (
    METRIC,
    TASKS,
    BootstrapSettings,
    CombineEntry,
    CombineSettings,
    CurveTask,
    ImageTask,
    LayerTask,
    Problems,
    RetrievalTask,
    Study,
    TestSettings,
    WordTask,
)

SCHEMA_VERSION = 1
_Json = dict[str, Any]


def find_study(name: str) -> Path:
    """The path of a study file: the path itself, or the path of a shipped file by its name.

    Raises:
        StudyError: there is neither; the error lists the shipped ones.
    """
    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises for a folder without read permission
        return path
    shipped = {p.stem: p for p in sorted(shipped_configs().glob("*.yaml"))}
    # 'configs/tiger-table1.yaml' works in any folder, also without a checkout.
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs")):
        return shipped[path.stem]
    raise StudyError(
        "there is no such study file", code="missing-file", path=name, hint=suggest(path.stem, list(shipped))
    )


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a study file and check its format; every problem is reported at once.

    Raises:
        StudyError: it is not YAML, or keys are unknown, missing or of the wrong type.
    """
    raw = {
        str(key): value
        for key, value in read_yaml(path, "a study (a mapping with 'schema', 'name', 'protocols', 'metrics')").items()
    }
    problems = Problems(path)
    file = None
    try:
        file = StudyFile.model_validate(raw)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            # A list with an invalid entry is also too short for pydantic; the entry was reported.
            if details["type"] != "too_short" or not details["input"]:
                problems.add(*_problem(details))
    for problem in _keys_that_disagree(raw):
        problems.add(*problem)
    problems.raise_if_any()
    assert file is not None
    return file.study(os.fspath(path))


def study_schema() -> _Json:
    """The JSON schema of study files, for editors."""
    schema = StudyFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "A capbench study"}


# Types of values.

_Text = Annotated[str, Field(pattern=r"\S")]


def _option(owner: str, declared: Declaration, value: object) -> Any:
    try:
        return declared.read(owner, value)
    except UsageError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


@dataclass(frozen=True)
class _Section:
    """Marks a field with declared options: the model takes their names, values and defaults from the declaration.

    Attributes:
        kind: the class of options.
        owner: their key in the file.
        such_as: an example, for the message.
        short: JSON schema of a value that may replace a mapping.
    """

    kind: type[Options]
    owner: str
    such_as: str = ""
    short: tuple[tuple[str, Any], ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        fields = {
            declared.name: core_schema.typed_dict_field(
                core_schema.no_info_plain_validator_function(partial(_option, self.owner, declared)), required=False
            )
            for declared in self.kind.declared()
        }
        options = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
        return core_schema.chain_schema(
            [
                core_schema.no_info_plain_validator_function(self._mapping),
                options,
                core_schema.no_info_plain_validator_function(lambda values: self.kind(**values)),
            ]
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        mapping = {"type": "object", "properties": _properties(self.kind), "additionalProperties": False}
        return {"anyOf": [dict(self.short), mapping]} if self.short else mapping

    def _mapping(self, value: object) -> _Json:
        if not isinstance(value, dict):
            such_as = f" such as {self.such_as}" if self.such_as else ""
            raise ValueError(f"'{self.owner}' should be a mapping{such_as}, not {value!r}")
        return {str(key): entry for key, entry in value.items()}


def _properties(kind: type[Options]) -> _Json:
    """JSON schemas of declared options, by name."""
    schemas = {}
    for declared in kind.declared():
        values = declared.kind.schema()
        if declared.default is None and values:
            values = {"anyOf": [values, {"type": "null"}]}
        shown = {} if declared.default is None else {"default": declared.default}
        schemas[declared.name] = {**values, "description": f"{declared.help} ({declared.kind.describe()})", **shown}
    return schemas


def _texts(*names: str) -> _Json:
    """JSON schemas of texts, by name."""
    return {name: {"type": "string"} for name in names}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# Entries of lists.


class _MetricEntry(_Model):
    """A metric: a name, a name with options, or a label with a metric and its options."""

    name: str
    options: dict[str, Any] | None = None
    title: str | None = None
    features: str | None = None
    model: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, entry: Any) -> Any:
        if isinstance(entry, str) and entry.strip():
            return {"name": entry}
        if isinstance(entry, dict) and ("label" in entry or "metric" in entry):
            return cls._labelled(entry)
        if isinstance(entry, dict) and len(entry) == 1:
            ((name, options),) = entry.items()
            if isinstance(name, str) and isinstance(options, dict):
                return {"name": name, "options": {str(key): value for key, value in options.items()}}
        raise ValueError(f"the metric entry {entry!r} should be a name, or 'name: {{option: value}}'")

    @staticmethod
    def _labelled(entry: dict[Any, Any]) -> _Json:
        texts = {key: entry[key] for key in ("label", "metric", "title", "features", "model") if key in entry}
        for key, text in texts.items():
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"'{key}' of the metric entry {entry!r} should be a text")
        if "label" not in texts or "metric" not in texts:
            raise ValueError(f"the metric entry {entry!r} should have a 'label' and a 'metric'")
        options = {str(key): value for key, value in entry.items() if key not in texts}
        return {"name": f"{texts.pop('label')}={texts.pop('metric')}", "options": options, **texts}

    @property
    def label(self) -> str:
        """The label of the row."""
        return self.name.partition("=")[0]

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        texts = _texts("label", "metric", "title", "features", "model")
        labelled = {"type": "object", "properties": texts, "required": ["label", "metric"]}
        named = {
            "type": "object",
            "propertyNames": {"not": {"enum": ["label", "metric"]}},
            "additionalProperties": {"type": "object"},
            "minProperties": 1,
            "maxProperties": 1,
        }
        return {"anyOf": [{"type": "string"}, named, labelled], "description": cls.__doc__}


class _ScoresEntry(_Model):
    """A file of scores, and how to read it."""

    model_config = ConfigDict(extra="allow")

    file: _Text
    label: str = ""
    title: str = ""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, entry: Any) -> Any:
        given = {"file": entry} if isinstance(entry, str) else entry
        if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
            raise ValueError(f"the entry {entry!r} of 'scores' should be a path, or a mapping with 'file'")
        return given

    def entry(self) -> ScoresEntry:
        options = dict(self.model_extra or {})
        columns = options.get("columns")
        if isinstance(columns, list) and columns and all(isinstance(column, str) for column in columns):
            options["columns"] = ",".join(columns)
        return ScoresEntry(self.file, self.label, self.title, options)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        properties = _texts("file", "label", "title") | _properties(FileScoresOptions)
        properties["columns"] = {"anyOf": [properties["columns"], {"type": "array", "items": {"type": "string"}}]}
        mapping = {"type": "object", "properties": properties, "required": ["file"], "additionalProperties": False}
        return {"anyOf": [{"type": "string"}, mapping], "description": cls.__doc__}


_COMBINE = "{of: [cider, spice], learner: ridge, folds: 10, inner_folds: 5, seed: 0}"


class _CombineEntry(_Model):
    """A combination of the study's metrics, learned from each protocol's judgements."""

    label: Annotated[str, Field(min_length=1)] = METRIC
    title: str = ""
    of: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    settings: Annotated[CombineSettings, _Section(CombineSettings, "combine")] = CombineSettings()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, entry: Any) -> Any:
        if not isinstance(entry, dict):
            raise ValueError(f"'combine' should be a mapping such as {_COMBINE}, or a list of them, not {entry!r}")
        texts = {key: entry[key] for key in ("label", "title") if key in entry}
        lists = {key: _tuple(entry[key]) for key in ("of", "lower") if key in entry}
        return {**texts, **lists, "settings": {k: v for k, v in entry.items() if k not in texts and k not in lists}}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        listed = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        properties = {**_texts("label", "title"), "of": listed, "lower": listed, **_properties(CombineSettings)}
        return {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "description": cls.__doc__,
        }


def _tuple(value: Any) -> Any:
    """One entry or a list of entries as a tuple; anything else unchanged."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _list_or_one(schema: _Json) -> None:
    """In a JSON schema: allow one entry without a list."""
    listed = {key: schema.pop(key) for key in ("type", "items", "minItems") if key in schema}
    for inner in schema.get("anyOf", ()):
        if inner.get("type") == "array":
            schema["anyOf"] = [inner["items"], *schema["anyOf"]]
            break
    else:
        schema["anyOf"] = [listed["items"], listed]


# The file.

_Paths = _Text | dict[str, Annotated[str, Field(min_length=1)]]


class StudyFile(_Model):
    """A study file."""

    schema_: Annotated[Literal[1], WithJsonSchema({"const": SCHEMA_VERSION})] = Field(
        alias="schema", description="Version of the format of study files"
    )
    name: _Text = Field(description="Folder name of the results")
    title: _Text | None = Field(None, description="Heading of the tables; default: the name")
    protocols: Annotated[tuple[_Text, ...], Field(min_length=1)] | None = Field(
        None, description="dataset/items/statistic, or a data set for its default", json_schema_extra=_list_or_one
    )
    metrics: Annotated[tuple[_MetricEntry, ...], Field(min_length=1)] | None = Field(
        None, description="Rows of the tables, in order", json_schema_extra=_list_or_one
    )
    scores: tuple[_ScoresEntry, ...] | None = Field(None, description="Files of scores from elsewhere")
    published: _Text | None = Field(None, description="A published table to compare with")
    features: _Paths | None = Field(None, description="Region features: a path, or paths by label or metric")
    models: _Paths | None = Field(None, description="Weights: a path, or paths by label or metric")
    images: _Text | None = Field(None, description="Folder of the pictures; default: the data set's image folders")
    bootstrap: (
        Annotated[
            BootstrapSettings,
            _Section(BootstrapSettings, "bootstrap", "{resamples: 1000}", (("type", "integer"), ("minimum", 100))),
        ]
        | None
    ) = Field(None, description="Bootstrap intervals")
    compare: (
        Annotated[TestSettings, _Section(TestSettings, "compare", "{test: permutation}", (("type", "string"),))] | None
    ) = Field(None, description="Tests between metrics; default unit and seed: those of the intervals")
    human_ceiling: bool = Field(True, description="Row of agreement between human raters")
    sentinels: bool = Field(False, description="Rows of sentinels, and tests of the metrics against them")
    allow_missing: bool = Field(False, description="Leave out items without a score in one of the files")
    combine: tuple[_CombineEntry, ...] | None = Field(
        None, description="Combinations of the metrics", json_schema_extra=_list_or_one
    )
    retrieval: Annotated[RetrievalTask, _Section(RetrievalTask, "retrieval")] | None = Field(
        None, description="For 'capbench explore retrieve'"
    )
    curves: Annotated[CurveTask, _Section(CurveTask, "curves")] | None = Field(
        None, description="For 'capbench correlate --references-curve'"
    )
    layers: Annotated[LayerTask, _Section(LayerTask, "layers")] | None = Field(
        None, description="For 'capbench figure layers'"
    )
    image: Annotated[ImageTask, _Section(ImageTask, "image")] | None = Field(
        None, description="For 'capbench explore examples'"
    )
    words: Annotated[WordTask, _Section(WordTask, "words")] | None = Field(
        None, description="For 'capbench explore words'"
    )

    @field_validator("name")
    @classmethod
    def _folder_name(cls, name: str) -> str:
        if name[0] in ".-" or not all(c.isalnum() or c in "-_." for c in name):
            raise ValueError(f"'name' {name!r} is not a valid folder name; use letters, digits, '-', '_' and '.'")
        return name

    @field_validator("protocols", "metrics", "scores", "combine", mode="before")
    @classmethod
    def _listed(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "combine" and value is not None and not isinstance(value, list):
            return (value,)
        return _tuple(value) if info.field_name != "scores" or isinstance(value, list) else value

    @field_validator("bootstrap", "compare", mode="before")
    @classmethod
    def _statistics(cls, value: Any, info: ValidationInfo) -> Any:
        """Accepts a number of resamples or the name of a test; tests inherit the unit and seed of the intervals."""
        if info.field_name == "bootstrap" and isinstance(value, int) and not isinstance(value, bool):
            value = {"resamples": value}
        if info.field_name == "compare" and isinstance(value, str):
            value = {"test": value}
        if not isinstance(value, dict):
            return value
        intervals = info.data.get("bootstrap")
        shared = {} if intervals is None else {"unit": intervals.unit, "seed": intervals.seed}
        return {**shared, **{key: given for key, given in value.items() if given is not None}}

    def study(self, path: str) -> Study:
        """The study in the file.

        Args:
            path: the file.
        """
        entries = self.metrics or ()
        features_of, models = (dict(paths) if isinstance(paths, dict) else {} for paths in (self.features, self.models))
        return Study(
            name=self.name,
            title=self.title or self.name,
            protocols=self.protocols or (),
            metrics=tuple(entry.name for entry in entries),
            options={entry.label: entry.options for entry in entries if entry.options is not None},
            titles={entry.label: entry.title for entry in entries if entry.title},
            published=self.published,
            features=self.features if isinstance(self.features, str) else None,
            features_of=features_of | {entry.label: entry.features for entry in entries if entry.features},
            model=self.models if isinstance(self.models, str) else None,
            models=models | {entry.label: entry.model for entry in entries if entry.model},
            images=self.images,
            bootstrap=self.bootstrap,
            compare=self.compare,
            human_ceiling=self.human_ceiling,
            sentinels=self.sentinels,
            scores=tuple(entry.entry() for entry in self.scores or ()),
            allow_missing=self.allow_missing,
            combine=tuple(
                CombineEntry(entry.label, entry.title, entry.of, entry.lower, entry.settings)
                for entry in self.combine or ()
            ),
            path=path,
            task=next(filter(None, (getattr(self, key) for key in TASKS)), None),
        )


# Messages about problems.


_Problem = tuple[str, str, object]
"""A message, its error code and the invalid value."""


def _keys_that_disagree(raw: Mapping[str, Any]) -> list[_Problem]:
    """Problems of combinations of keys; the model checks the values."""
    tasks = [key for key in TASKS if key in raw]
    found: list[_Problem] = [
        (f"'{key}' should be a mapping, not None", "wrong-type", key) for key in tasks if raw[key] is None
    ]
    if len(tasks) > 1:
        found.append((f"a study has one of {' and '.join(map(repr, tasks))}", "conflict", tasks[1]))
    printed_alone = raw.get("published") is not None and not {"protocols", "metrics", *TASKS} & raw.keys()
    if tasks and not TASKS[tasks[0]].judged:
        if "protocols" in raw:
            message = "this study has no judgements and so no 'protocols'. Remove the key"
            found.append((message, "conflict", "protocols"))
    elif not printed_alone and raw.get("protocols") is None:
        found.append(("the key 'protocols' is missing", "missing-key", "protocols"))
    if not printed_alone and raw.get("metrics") is None:
        found.append((_wrong_form("metrics", None), "missing-key", "metrics"))
    return found + _repeats(raw)


def _repeats(raw: Mapping[str, Any]) -> list[_Problem]:
    """Repeated protocols and labels of metrics, among valid entries."""
    protocols, metrics = (value if isinstance(value := raw.get(key), list) else [] for key in ("protocols", "metrics"))
    found: list[_Problem] = [
        (f"'{name}' occurs twice in 'protocols'", "duplicate", name)
        for name, before in _each(protocols)
        if name in before
    ]
    names: list[str] = []
    for entry in metrics:
        with suppress(ValueError):
            names.append(_MetricEntry.model_validate(entry).name)
    labels = [name.partition("=")[0] for name in names]
    for (label, before), name in zip(_each(labels), names, strict=True):
        if label in before:
            message = (
                f"'{label}' occurs twice in 'metrics'. Give one of them a label: "
                f"{{label: {label.split(':')[-1]}-2, metric: {name.partition('=')[2] or name}}}"
            )
            found.append((message, "duplicate", label))
    return found


def _each(entries: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Each text, and all entries before it."""
    return ((entry, entries[:i]) for i, entry in enumerate(entries) if isinstance(entry, str))


_KEYS = tuple(field.alias or name for name, field in StudyFile.model_fields.items())
_OPTIONS: dict[str, type[Options]] = {
    "bootstrap": BootstrapSettings,
    "compare": TestSettings,
    "combine": CombineSettings,
    **TASKS,
}


def _problem(details: ErrorDetails) -> _Problem:
    """A finding of pydantic as a message with the key and the remedy."""
    place, kind, value = details["loc"], details["type"], details["input"]
    key = str(place[0])
    code = "missing-key" if kind == "missing" else "wrong-type"
    if kind == "value_error":
        error = details["ctx"]["error"]
        message = "; ".join(map(str, error.args))
        if isinstance(cause := error.__cause__, CapbenchError):
            return message, cause.code, cause.value
        return message, "wrong-value", value if isinstance(value, str | int | float) else None
    if kind == "extra_forbidden":
        name = str(place[-1])
        if len(place) == 1:
            return f"unknown key '{key}'. {suggest(key, list(_KEYS))}", "unknown-key", key
        names = [declared.name for declared in _OPTIONS[key].declared()]
        return f"{key} has no option '{name}'. {suggest(name, names)}", "unknown-option", name
    if len(place) == 1 and (kind == "missing" or value is None) and key == "name":
        return f"the key '{key}' is missing", "missing-key", key
    if key == "schema":
        version = None if kind == "missing" else value
        message = f"'schema' is {version!r}; this version reads schema {SCHEMA_VERSION}: "
        return f"{message}write 'schema: {SCHEMA_VERSION}'", "wrong-version", version
    name = str(place[2 if len(place) > 2 else 0])
    if key == "combine":
        message = f"'{name}' of 'combine' should be names, as in {_COMBINE}"
    elif key == "scores" and len(place) > 2:
        wrong = "is missing" if kind == "missing" else f"should be a text, not {value!r}"
        message = f"'{name}' of entry {int(place[1]) + 1} of 'scores' {wrong}"
    else:
        message = _wrong_form(key, value)
    return message, code, name


def _wrong_form(key: str, value: object) -> str:
    paths = f"'{key}' should be a path, or a mapping of metric names or labels to paths"
    several = "; several networks are one path if they are an ensemble ('capbench models combine')"
    forms = {
        "protocols": "'protocols' should be a list of texts with at least one entry",
        "metrics": "the key 'metrics' should be a list of metrics with at least one entry",
        "scores": "'scores' should be a list of files, or of {file: …, columns: […], higher: better|worse}",
        "features": paths,
        "models": paths + several,
        **{
            name: f"'{name}' should be true or false, not {value!r}"
            for name in ("human_ceiling", "sentinels", "allow_missing")
        },
    }
    return forms.get(key, f"'{key}' should be a text, not {value!r}")

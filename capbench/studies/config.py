"""A study: which metrics, on which protocols, beside which published table. Read from YAML, checked as a whole.

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
    images: pictures                  # optional: the folder of the pictures; default: the data folder's */images
    bootstrap: {resamples: 1000, unit: image, seed: 0, method: percentile, level: 0.95}   # optional: intervals
    compare: {test: permutation, correction: holm, alpha: 0.05, resamples: 1000, seed: 0} # optional: tests
    human_ceiling: true               # optional: false leaves the row of people's agreement out
    retrieval: {captions: flickr8k}   # in place of protocols: another task (capbench.studies.tasks)
    combine: {of: [cider, spice], learner: ridge, folds: 10, inner_folds: 5, seed: 0}     # optional: combinations

A file that names a ``published`` table and has neither ``protocols`` nor ``metrics`` prints that table alone. That is
for tables whose judgements are not public.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capbench.errors import CapbenchError, StudyError, suggest
from capbench.metrics.from_file import ScoresEntry
from capbench.metrics.requests import Asked
from capbench.studies.combine_settings import CombineEntry, parse_combine
from capbench.studies.settings import BootstrapSettings, TestSettings, parse_bootstrap, parse_compare
from capbench.studies.tasks import TASKS, Task, parse_task

__all__ = ["SCHEMA_VERSION", "Study", "find_study", "load_study"]

SCHEMA_VERSION = 1
_KEYS = (
    *("schema", "name", "title", "protocols", "metrics", "scores", "published", "features", "models", "images"),
    *("bootstrap", "compare", "human_ceiling", "allow_missing", "combine", *TASKS),
)


@dataclass(frozen=True)
class Study:
    """A study as it was asked for; nothing is resolved yet.

    Attributes:
        name: folder name of the results.
        title: one line for the table's head.
        protocols: protocol ids or data set names; none where a published table is printed alone.
        metrics: metric or column names, in the order of the table's rows; ``LABEL=NAME`` where one has a label; or
            classes, from Python; none where a published table is printed alone.
        options: metric options by label, metric or column name.
        titles: titles of rows by label.
        published: name of a published table, or None.
        features: path of a region-feature store for every metric that ``features_of`` does not name, or None.
        features_of: paths of stores by label or metric name.
        models: path of weights by label or metric name.
        model: path of weights for every metric that ``models`` does not name and that needs some.
        bootstrap: how intervals are made; None for none.
        compare: how metrics are tested against each other; None for no tests.
        human_ceiling: whether people's agreement with each other is shown where raters are known.
        path: the file it came from, None for a study made of flags.
        scores: files of scores that were computed elsewhere.
        allow_missing: whether items without a score in one of these files are left out, for all metrics.
        task: what is asked for in place of agreement with people; None for that.
        without: labels, metrics or rows that are left out; their rows say so. Given by ``--without`` alone.
        combine: combinations of the metrics, learnt from each protocol's judgements.
        images: the folder of the pictures; None: the data folder's.
    """

    name: str
    title: str
    protocols: tuple[str, ...]
    metrics: tuple[Asked, ...]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    published: str | None = None
    features: str | None = None
    models: dict[str, str] = field(default_factory=dict)
    bootstrap: BootstrapSettings | None = None
    compare: TestSettings | None = None
    human_ceiling: bool = True
    path: str | None = None
    model: str | None = None
    features_of: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    scores: tuple[ScoresEntry, ...] = ()
    allow_missing: bool = False
    task: Task | None = None
    combine: tuple[CombineEntry, ...] = ()
    images: str | None = None


def shipped_configs() -> Path:
    """The folder of the study files that come with capbench, installed or in a source checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find_study(name: str) -> Path:
    """The path of a study file: as given, or one that comes with capbench by its name.

    Raises:
        StudyError: there is neither; the shipped ones are listed.
    """
    path = Path(name)
    if os.path.isfile(path):  # noqa: PTH113  Path.is_file raises where a folder may not be looked into
        return path
    shipped = {p.stem: p for p in sorted(shipped_configs().glob("*.yaml"))}
    # 'configs/tiger-table1.yaml' is found from any folder, also where there is no checkout.
    if path.stem in shipped and path.suffix in ("", ".yaml") and path.parent in (Path(), Path("configs")):
        return shipped[path.stem]
    raise StudyError("there is no such study file", path=name, hint=suggest(path.stem, list(shipped)))


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a study file and check its form; every problem is reported at once.

    Raises:
        StudyError: it is not YAML, or keys are unknown, missing or of the wrong type.
    """
    from capbench.yaml_files import read_yaml

    raw = read_yaml(path, "study: a mapping with 'schema', 'name', 'protocols', 'metrics'")
    problems = _Problems(path)
    for key in raw:
        if key not in _KEYS:
            problems.add(f"unknown key '{key}'. {suggest(str(key), list(_KEYS))}")
    if raw.get("schema") != SCHEMA_VERSION:
        problems.add(
            f"'schema' is {raw.get('schema')!r}; this version reads schema {SCHEMA_VERSION}: "
            f"write 'schema: {SCHEMA_VERSION}'"
        )
    name = problems.text(raw, "name", required=True) or ""
    if name and not _safe_name(name):
        problems.add(f"'name' {name!r} cannot be a folder's name; use letters, digits, '-', '_' and '.'")
    task = parse_task(raw, problems.add)
    printed_alone = raw.get("published") is not None and not {"protocols", "metrics", *TASKS} & raw.keys()
    unjudged = task is not None and not task.judged
    if unjudged and "protocols" in raw:
        problems.add("'protocols' belong to judgements, which this study is not of. Leave them out")
    entries = _Entries() if printed_alone else _metrics(raw.get("metrics"), problems)
    features, features_of = _files(raw.get("features"), "features", problems)
    model, models = _files(raw.get("models"), "models", problems)
    bootstrap = parse_bootstrap(raw.get("bootstrap"), problems.add)
    ceiling = _truth(raw, "human_ceiling", True, problems)
    study = Study(
        name=name,
        title=problems.text(raw, "title") or name,
        protocols=() if printed_alone or unjudged else _texts(raw.get("protocols"), "protocols", problems),
        metrics=tuple(entries.names),
        options=entries.options,
        titles=entries.titles,
        published=problems.text(raw, "published"),
        features=features,
        features_of={**features_of, **entries.features},
        model=model,
        models={**models, **entries.models},
        images=problems.text(raw, "images"),
        bootstrap=bootstrap,
        compare=parse_compare(raw.get("compare"), bootstrap, problems.add),
        human_ceiling=ceiling,
        scores=_score_files(raw.get("scores"), problems),
        allow_missing=_truth(raw, "allow_missing", False, problems),
        combine=parse_combine(raw.get("combine"), problems.add),
        path=os.fspath(path),
        task=task,
    )
    problems.raise_if_any()
    return study


class _Problems:
    """Collects what is wrong with a study, to report it all at once."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = path
        self.told: list[str] = []

    def add(self, problem: str) -> None:
        if problem not in self.told:
            self.told.append(problem)

    def catch(self, error: CapbenchError) -> None:
        self.add(str(error))

    def text(self, raw: dict[str, Any], key: str, required: bool = False) -> str | None:
        value = raw.get(key)
        if value is None:
            if required:
                self.add(f"the key '{key}' is missing")
            return None
        if not isinstance(value, str) or not value.strip():
            self.add(f"'{key}' should be a text, not {value!r}")
            return None
        return value

    def raise_if_any(self) -> None:
        if len(self.told) == 1:
            raise StudyError(self.told[0], path=self.path)
        if self.told:
            listed = "; ".join(f"({i}) {problem.removesuffix('.')}" for i, problem in enumerate(self.told, 1))
            raise StudyError(f"{len(self.told)} problems: {listed}", path=self.path)


def _safe_name(name: str) -> bool:
    return name[0] not in ".-" and all(c.isalnum() or c in "-_." for c in name)


def _texts(value: Any, key: str, problems: _Problems) -> tuple[str, ...]:
    if value is None:
        problems.add(f"the key '{key}' is missing")
        return ()
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not entries or not all(isinstance(e, str) and e.strip() for e in entries):
        problems.add(f"'{key}' should be a list of texts with at least one entry")
        return ()
    _refuse_repeats(entries, key, problems)
    return tuple(entries)


@dataclass
class _Entries:
    """What the list of metrics says."""

    names: list[str] = field(default_factory=list)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    features: dict[str, str] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)


_ENTRY_KEYS = ("label", "metric", "title", "features", "model")


def _metrics(value: Any, problems: _Problems) -> _Entries:
    entries = _Entries()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed:
        problems.add("the key 'metrics' should be a list of metrics with at least one entry")
        return entries
    for entry in listed:
        if isinstance(entry, str) and entry.strip():
            entries.names.append(entry)
        elif isinstance(entry, dict) and ("label" in entry or "metric" in entry):
            _labelled(entry, entries, problems)
        elif isinstance(entry, dict) and len(entry) == 1:
            ((name, options),) = entry.items()
            if not isinstance(name, str) or not isinstance(options, dict):
                problems.add(f"the metric entry {entry!r} should be a name, or 'name: {{option: value}}'")
                continue
            entries.names.append(name)
            entries.options[name.partition("=")[0]] = {str(k): v for k, v in options.items()}
        else:
            problems.add(f"the metric entry {entry!r} should be a name, or 'name: {{option: value}}'")
    seen: set[str] = set()
    for name in entries.names:
        label = name.partition("=")[0]
        if label in seen:
            problems.add(
                f"'{label}' stands twice in 'metrics'. Give one of them a label: {{label: {label.split(':')[-1]}-2, "
                f"metric: {name.partition('=')[2] or name}}}"
            )
        seen.add(label)
    return entries


def _labelled(entry: dict[Any, Any], entries: _Entries, problems: _Problems) -> None:
    """One entry ``{label: …, metric: …, option: value, …}``; its features, weights and title go by its label."""
    texts = {key: entry[key] for key in _ENTRY_KEYS if key in entry}
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            problems.add(f"'{key}' of the metric entry {entry!r} should be a text")
            return
    if "label" not in texts or "metric" not in texts:
        problems.add(f"the metric entry {entry!r} should have a 'label' and a 'metric'")
        return
    label = texts["label"]
    entries.names.append(f"{label}={texts['metric']}")
    entries.options[label] = {str(k): v for k, v in entry.items() if k not in _ENTRY_KEYS}
    for key, target in (("title", entries.titles), ("features", entries.features), ("model", entries.models)):
        if key in texts:
            target[label] = texts[key]


def _truth(raw: dict[str, Any], key: str, default: bool, problems: _Problems) -> bool:
    value = raw.get(key, default)
    if not isinstance(value, bool):
        problems.add(f"'{key}' should be true or false, not {value!r}")
        return default
    return value


def _score_files(value: Any, problems: _Problems) -> tuple[ScoresEntry, ...]:
    """The entries of ``scores``: paths, or ``{file: …, label: …, title: …, columns: […], option: value, …}``."""
    if value is None:
        return ()
    if not isinstance(value, list):
        problems.add("'scores' should be a list of files, or of {file: …, columns: […], higher: better|worse}")
        return ()
    entries: list[ScoresEntry] = []
    for entry in value:
        given = {"file": entry} if isinstance(entry, str) else entry
        if not isinstance(given, dict) or not all(isinstance(key, str) for key in given):
            problems.add(f"the entry {entry!r} of 'scores' should be a path, or a mapping with 'file'")
            continue
        texts = {key: given.get(key, "") for key in ("file", "label", "title")}
        if not all(isinstance(text, str) for text in texts.values()) or not texts["file"].strip():
            problems.add(f"'file', 'label' and 'title' of the entry {entry!r} of 'scores' should be texts")
            continue
        options = {key: option for key, option in given.items() if key not in texts}
        columns = options.get("columns")
        if isinstance(columns, list) and columns and all(isinstance(column, str) for column in columns):
            options["columns"] = ",".join(columns)
        entries.append(ScoresEntry(texts["file"], texts["label"], texts["title"], options))
    return tuple(entries)


def _files(value: Any, key: str, problems: _Problems) -> tuple[str | None, dict[str, str]]:
    """A path for all metrics, or paths by label or metric name."""
    if value is None:
        return None, {}
    if isinstance(value, str) and value.strip():
        return value, {}
    if isinstance(value, dict) and all(isinstance(k, str) and isinstance(v, str) and v for k, v in value.items()):
        return None, dict(value)
    several = "; several networks are one path if they are an ensemble ('capbench models ensemble')"
    problems.add(
        f"'{key}' should be a path, or a mapping of metric names or labels to paths"
        + (several if key == "models" else "")
    )
    return None, {}


def _refuse_repeats(entries: Iterable[str], key: str, problems: _Problems) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry in seen:
            problems.add(f"'{entry}' stands twice in '{key}'")
        seen.add(entry)

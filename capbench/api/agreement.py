"""``capbench.correlate`` and ``capbench.correlate_all_protocols``: agreement of metrics with human judgements."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from capbench.api.checking import check_arguments, check_name, refuse_with_study
from capbench.api.resolve import (
    SAMPLE_MODEL,
    SAMPLE_STORE,
    Caller,
    DatasetGiven,
    FilesGiven,
    MetricInputs,
    MetricsGiven,
    OptionsGiven,
    PathGiven,
    ScoresGiven,
    VersionGiven,
    asked,
    given_inputs,
    has_sample_features,
    is_sample_data,
    note_sample,
    options_by_owner,
    python_caller,
    resolve_study,
    texts,
    warn,
    with_inputs,
)
from capbench.api.results import ON_SAMPLE
from capbench.core.errors import StatisticError, UsageError, suggest
from capbench.datasets.opening import split_protocol
from capbench.datasets.root import find_root
from capbench.metrics.needs import Resources
from capbench.metrics.requests import left_out_of_all, require_resources
from capbench.studies.judged import ProgressFactory, refuse_means
from capbench.studies.results import NO_TESTS, StudyResult
from capbench.studies.run import Keep, SlowPart, run_plan
from capbench.studies.study import (
    StatisticsChoice,
    Study,
    protocols_asked,
    with_statistics,
)

if TYPE_CHECKING:
    import pandas as pd

    from capbench.datasets.root import DataRoot
    from capbench.stats.pairs import Correction, Test, Unit
    from capbench.studies.all_protocols import SensitivityResult
    from capbench.studies.plan import Plan
    from capbench.studies.study import BootstrapMethod

__all__ = [
    "CorrelationResult",
    "PlannedStudy",
    "StudyRequest",
    "correlate",
    "correlate_all_protocols",
    "plan_agreement",
    "warn_of_missing",
]


def correlate(
    dataset: DatasetGiven | Sequence[DatasetGiven] | None = None,
    metrics: MetricsGiven = (),
    *,
    study: PathGiven | None = None,
    protocol: str | Sequence[str] | None = None,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    bootstrap: int | None = None,
    interval: BootstrapMethod | None = None,
    compare: Test | None = None,
    correction: Correction | None = None,
    alpha: float | None = None,
    permutations: int | None = None,
    unit: Unit | None = None,
    seed: int | None = None,
    sentinels: bool = False,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> CorrelationResult:
    """Measure how well metrics agree with human judgements, as ``capbench correlate`` does.

    On the user's own judgements (a file or an imported data set), ``answers`` of the result names the metric that fits
    them best, from intervals, tests and a power analysis with default settings.

    Args:
        dataset: a data set, or several: names, files of judgements, or classes.
        metrics: names, functions or classes, or a dictionary of them by label.
        study: a study file (YAML), or the name of one that comes with capbench, in place of ``dataset``, ``metrics``
            and ``protocol``. The other arguments override the file.
        protocol: protocols, or parts of their ids; by default the data set's default protocol.
        scores: see :class:`capbench.api.resolve.MetricInputs`, as for ``allow_missing``, ``options``, ``features``,
            ``model``, ``images``, ``data``, ``cache``, ``version`` and ``columns``.
        bootstrap: number of resamples for intervals; none by default, 1,000 on the user's own judgements.
        interval: ``percentile`` or ``bca``.
        compare: test of all pairs of metrics; none by default, ``permutation`` on the user's own judgements.
        correction: for the number of pairs, ``holm``, ``bh`` or ``none``.
        alpha: significance level.
        permutations: their number; by default 10,000, or the number that the correction requires.
        unit: unit of resampling: ``image``, ``item`` or ``rating``.
        seed: of resamples and permutations.
        sentinels: True for the agreement of sentinels, and tests of the metrics against them; see docs/sentinels.md.
        without: metrics, labels or columns that are left out.
        progress: see :func:`capbench.api.caller.python_caller`.

    Raises:
        UsageError, StudyError: an argument is not valid; StudyError lists all problems.
        DataError: a file has invalid content.
        MetricError: a metric failed, or a function returned a value that is not a number; the caption is named.
        StatisticError: a statistic is undefined on these numbers.
    """
    check_arguments(locals(), several=["dataset", "protocol"])
    request = StudyRequest(
        study=study,
        datasets=dataset,
        metrics=metrics,
        protocols=protocol,
        statistics=StatisticsChoice(
            bootstrap=bootstrap,
            interval=interval,
            compare=compare,
            correction=correction,
            alpha=alpha,
            permutations=permutations,
            unit=unit,
            seed=seed,
        ),
        without=without,
        sentinels=sentinels or None,
    )
    _refuse_nothing(request, scores)
    result = plan_agreement(request, given_inputs(locals()), python_caller(progress)).run()
    warn_of_missing(result)
    return result


def correlate_all_protocols(
    dataset: DatasetGiven | Sequence[DatasetGiven],
    metrics: MetricsGiven = (),
    *,
    scores: ScoresGiven = (),
    allow_missing: bool = False,
    compare: Test | None = None,
    correction: Correction | None = None,
    alpha: float | None = None,
    permutations: int | None = None,
    unit: Unit | None = None,
    seed: int | None = None,
    without: str | Sequence[str] = (),
    options: OptionsGiven | None = None,
    features: FilesGiven | None = None,
    model: FilesGiven | None = None,
    images: PathGiven | None = None,
    data: PathGiven | None = None,
    cache: bool = True,
    version: VersionGiven | None = None,
    columns: Mapping[str, str] | None = None,
    progress: bool | ProgressFactory = False,
) -> SensitivityResult:
    """Rank metrics under every protocol of data sets, as ``capbench correlate --all-protocols`` does.

    Args:
        dataset: a data set, or several.
        metrics: names, functions or classes, or a dictionary of them by label.
        scores: this and the arguments that follow are those of :func:`correlate`. With ``compare``, the result says
            which changes of rank are significant.

    Raises:
        ProtocolError: a data set has no human judgements.
        UsageError: the test does not fit all protocols; or see :func:`correlate`, as for all other errors.
    """
    check_arguments(locals(), required=["dataset"], several=["dataset"])
    choice = StatisticsChoice(
        compare=compare, correction=correction, alpha=alpha, permutations=permutations, unit=unit, seed=seed
    )
    request = StudyRequest(datasets=dataset, metrics=metrics, statistics=choice, without=without, all_protocols=True)
    _refuse_nothing(request, scores)
    found = plan_agreement(request, given_inputs(locals()), python_caller(progress)).run_all_protocols()
    warn_of_missing(found.result)
    return found


def _refuse_nothing(request: StudyRequest, scores: ScoresGiven) -> None:
    """Raise UsageError if a Python program names no study file and no data set, or no metric."""
    if request.study is not None:
        return
    if not texts(request.datasets) and not texts(request.protocols):
        raise UsageError("no data set is named", code="missing-option", hint="Name one, such as 'flickr8k-expert'")
    if not asked(request.metrics) and not scores:
        raise UsageError("no metric is named", code="missing-option", hint=python_caller(False).no_metric)


def warn_of_missing(result: StudyResult) -> None:
    """Warn of numbers that are missing or undefined, for the function that the user called."""
    for missing in result.missing:
        if not missing.left_out:
            text = f"{missing.title or missing.protocol} is not computed: {missing.reason}"
            warn(text)
    for cell in result.undefined:
        place = f"{cell.protocol}{f', {cell.group}' if cell.group else ''}"
        warn(f"{cell.title} is undefined under {place}: {cell.undefined}")


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A study of agreement, as Python or the command line requests it.

    Attributes:
        study: a study file, or the name of one that comes with capbench; None for a study of the following.
        datasets: data sets; if these and ``protocols`` are empty, all published judgements whose files are installed
            and all imported ones.
        metrics: metrics; if these and files of scores are empty, all.
        protocols: ids of protocols, or parts of ids.
        statistics: intervals and tests, which override a study file.
        without: metrics, labels or columns that are left out.
        all_protocols: True for every protocol of the data sets.
        sentinels: True to show sentinels, False to omit them, None for the study's setting.
        comparison: True for a comparison: at least two metrics, which are all required, and overall numbers only.
    """

    study: PathGiven | None = None
    datasets: DatasetGiven | Sequence[DatasetGiven] | None = None
    metrics: MetricsGiven = ()
    protocols: str | Sequence[str] | None = None
    statistics: StatisticsChoice = dataclasses.field(default_factory=StatisticsChoice)
    without: str | Sequence[str] = ()
    all_protocols: bool = False
    sentinels: bool | None = None
    comparison: bool = False


@dataclass(frozen=True)
class PlannedStudy:
    """A study of agreement that is resolved and checked; nothing is scored.

    Attributes:
        plan: the study with every name resolved.
        caller: Python or the command line.
        cache: True to use the score cache.
        comparison: see :class:`StudyRequest`.
    """

    plan: Plan
    caller: Caller
    cache: bool
    comparison: bool = False

    def run(self, keep: Keep | None = None) -> CorrelationResult:
        """Score and correlate.

        Args:
            keep: see :func:`capbench.studies.run.run_plan`, as for errors.
        """
        result = run_plan(
            self.plan,
            self.caller.progress,
            cache=self.cache,
            test_groups=not self.comparison,
            announce=self.announce,
            keep=keep,
        )
        return CorrelationResult.of(_compared(result) if self.comparison else result)

    def run_all_protocols(self, keep: Keep | None = None) -> SensitivityResult:
        """Score, correlate, and rank the metrics under each protocol; the arguments are those of :meth:`run`."""
        from capbench.studies.all_protocols import run_all_protocols

        return run_all_protocols(self.plan, self.caller.progress, cache=self.cache, announce=self.announce, keep=keep)

    def announce(self, slow: SlowPart) -> None:
        """Note work that takes more than half a minute, and how to avoid it; progress shows the time left."""
        work = "; ".join(f"{w.subject} {len(w.units):,} {w.unit} first" for w in slow.works)
        self.caller.note(f"{work}; leave it out with {self.caller.leave_out(slow.labels)}")


def plan_agreement(request: StudyRequest, inputs: MetricInputs, caller: Caller) -> PlannedStudy:
    """Resolve a study of agreement, and report the data folder to the caller; nothing is scored.

    Args:
        request: the study.
        inputs: inputs of the metrics.
        caller: Python or the command line.

    Raises:
        UsageError: arguments exclude each other, or one is not valid.
        StudyError: the study file does not exist, or the study does not fit; all problems are listed.
        ProtocolError: with ``all_protocols``, a data set has no human judgements.
        FeatureError: a feature store does not exist.
    """
    if request.all_protocols:
        _check_all_protocols(request, caller)
    if request.comparison and not asked(request.metrics) and not inputs.get("scores"):
        raise UsageError("no metric is named", code="missing-option", hint=caller.no_metric)
    root = find_root(inputs.get("data"))
    if request.study is None:
        study = _with_sample_of_all(_study_without_file(request, inputs, root, caller), inputs, root, caller)
    else:
        study = _study_of_file(os.fspath(request.study), request, caller)
    study = with_statistics(with_inputs(study, inputs, caller), request.statistics, caller.spelled)
    study = replace(study, without=tuple(texts(request.without)))
    if request.sentinels is not None:
        study = replace(study, sentinels=request.sentinels)
    plan = resolve_study(study, root, caller, all_protocols=request.all_protocols)
    if request.comparison:
        if len(plan.rows) < 2:
            raise UsageError("a comparison requires two metrics", code="too-few", hint="Name two or more")
        for _, protocol in plan.protocols:
            refuse_means(protocol)
        require_resources(plan.requests, plan.resources)
    caller.on_data(root, plan.uses_root)
    return PlannedStudy(plan, caller, inputs.get("cache", True), request.comparison)


def _compared(result: StudyResult) -> StudyResult:
    """The result with the best metrics first; StatisticError if fewer than two metrics have a value."""
    (protocol,) = result.protocols
    cells = [cell for cell in result.cells if not cell.group and cell.value is not None]
    if len(cells) < 2:
        reasons = [f"{cell.title}: {cell.undefined}" for cell in result.undefined if not cell.group]
        reasons += [f"{missing.title}: {missing.reason}" for missing in result.missing]
        raise StatisticError(reasons[0], code="missing-value", value=protocol.id)
    tests = result.comparison(protocol.id)
    if tests is None:
        reason = next((note for note in protocol.notes if NO_TESTS in note), f"{protocol.id}: no tests")
        raise StatisticError(reason.partition(NO_TESTS)[2] or reason, code="unsupported", value=protocol.id)
    best_first = dict.fromkeys((*tests.ranks, *result.columns))
    return result.model_copy(update={"columns": {name: result.columns[name] for name in best_first}})


def _check_all_protocols(request: StudyRequest, caller: Caller) -> None:
    """Raise UsageError for arguments that ``all_protocols`` excludes."""
    spelled = caller.spelled
    if request.study is not None or request.protocols:
        raise UsageError(
            f"{spelled('all_protocols')} takes every protocol of the data sets, not a choice of them",
            code="conflict",
            hint=f"Pass {spelled('dataset')} and {spelled('metrics')}, without a study file and {spelled('protocol')}",
        )
    if request.sentinels:
        raise UsageError(
            f"{spelled('all_protocols')} ranks metrics only, so {spelled('sentinels')} changes nothing",
            code="conflict",
            value=spelled("sentinels"),
            hint=f"Omit {spelled('sentinels')}",
        )
    if request.statistics.bootstrap:
        raise UsageError(
            f"{spelled('all_protocols')} ranks metrics without intervals, so {spelled('bootstrap')} changes nothing",
            code="conflict",
            hint=f"Omit {spelled('bootstrap')}; {spelled('compare')} tests which changes of rank are significant",
        )


def _study_of_file(file: str, request: StudyRequest, caller: Caller) -> Study:
    from capbench.studies.study_file import find_study, load_study

    refuse_with_study({"metrics": asked(request.metrics), "protocol": texts(request.protocols)}, caller)
    study = load_study(find_study(file))
    if datasets := texts(request.datasets):
        study = replace(study, protocols=_of_datasets(study, datasets, caller))
    if study.task is not None:
        command = f"'capbench {study.task.command} {file}'"
        if study.published is None:
            raise UsageError(
                f"{study.name} is not a study of agreement", code="unsupported", value=study.name, hint=f"Run {command}"
            )
        caller.note(f"only the published table is shown; {command} computes its rows")
    return study


def _of_datasets(study: Study, datasets: Sequence[str], caller: Caller) -> tuple[str, ...]:
    """The study's protocols of some data sets.

    Raises:
        UsageError: the study has no protocol of one of them.
    """
    names = {protocol: protocol.partition("/")[0] for protocol in study.protocols}
    fitting = {p: {name, name.partition("@")[0]}.intersection(datasets) for p, name in names.items()}
    for dataset in datasets:
        if not any(dataset in found for found in fitting.values()):
            raise UsageError(
                f"the study {study.name} has no protocol of {dataset}",
                code="unknown-name",
                value=dataset,
                hint=f"Choices: {', '.join(dict.fromkeys(names.values()))}. Omit the study to use another data set "
                f"({caller.spelled('dataset')} {dataset})",
            )
    return tuple(protocol for protocol, found in fitting.items() if found)


def _study_without_file(request: StudyRequest, inputs: MetricInputs, root: DataRoot, caller: Caller) -> Study:
    metrics = asked(request.metrics, inputs.get("version")) or ([] if inputs.get("scores", ()) else ["all"])
    protocols = protocols_asked(texts(request.datasets), texts(request.protocols), caller.spelled)
    plain = request.all_protocols or request.comparison
    return Study(
        name="comparison" if request.comparison else "quick-look",
        title="Agreement with human judgements",
        protocols=tuple(protocols or _installed_judgements(root, caller)),
        metrics=tuple(metrics),
        answers=not plain,
        practices=not plain and not texts(request.protocols),
    )


def _with_sample_of_all(study: Study, inputs: MetricInputs, root: DataRoot, caller: Caller) -> Study:
    """With ``all`` on the embedded sample: the sample's features and networks, if the features are extracted already.

    Metrics that capbench has a sample network of are then part of ``all``, as in the study ``demo``.
    """
    if "all" not in study.metrics or inputs.get("features") or inputs.get("model") or not root.is_sample:
        return study
    if not all(is_sample_data(root, split_protocol(text)[0]) for text in study.protocols):
        return study
    if find_spec("torch") is None or not has_sample_features(root):
        return study
    from capbench.metrics.registry import metric_names
    from capbench.weights.registry import has_sample

    sampled = [name for name in metric_names() if has_sample(name)]
    resources = Resources(
        features_of=dict.fromkeys(sampled, str(SAMPLE_STORE)), models=dict.fromkeys(sampled, SAMPLE_MODEL)
    )
    missing = left_out_of_all(replace(resources, data=str(root.path)), options_by_owner(inputs.get("options")))
    taken = [name for name in sampled if name not in missing]
    note_sample(taken, caller)
    return replace(
        study,
        features_of={name: resources.features_of[name] for name in taken},
        models=dict.fromkeys(taken, SAMPLE_MODEL),
    )


_PUBLISHED = (
    "flickr8k-expert",
    "flickr8k-crowdflower",
    "composite",
    "pascal-50s",
    "foil",
    "thumb",
    "nebula",
    "polaris",
)
"""Data sets of a study that names none. FOIL's whole test set and CxC, which have far more items, must be named."""


def _installed_judgements(root: DataRoot, caller: Caller) -> list[str]:
    """Published judgements whose files are installed, then imported ones; the others are noted.

    All published ones if none is installed, so that the error names the missing files.
    """
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import missing_needs
    from capbench.datasets.user.judgements import imported_names

    known = catalog().datasets
    absent = [name for name in _PUBLISHED if missing_needs(known[name], root)]
    installed = [*(name for name in _PUBLISHED if name not in absent), *imported_names(root)]
    if absent and installed:
        caller.note(f"left out: {', '.join(absent)}; 'capbench data info NAME' lists the missing files")
    return installed or list(_PUBLISHED)


class CorrelationResult(StudyResult):
    """Agreement of metrics with human judgements, as :func:`capbench.correlate` returns it.

    ``print(result)`` prints its tables.

    The attributes are those of :class:`capbench.studies.results.StudyResult`, which ``correlate --json`` prints.
    """

    @classmethod
    def of(cls, result: StudyResult) -> CorrelationResult:
        """The same result."""
        return cls.model_construct(**{name: getattr(result, name) for name in StudyResult.model_fields})

    def value(self, column: str, protocol: str | None = None, group: str = "") -> float:
        """One number.

        Args:
            column: the row's name (``cider``).
            protocol: id of its protocol; optional if there is only one.
            group: the group, ``""`` for overall.

        Raises:
            UsageError: there is no such number; the choices are listed.
            StatisticError: it is undefined; the reason is given.
        """
        check_name("column", column)
        check_name("group", group)
        if protocol is not None:
            check_name("protocol", protocol)
        ids = [info.id for info in self.protocols]
        if protocol is None and len(ids) != 1:
            raise UsageError(
                f"the result has {len(ids)} protocols", code="ambiguous", hint=f"Name one: {', '.join(ids)}"
            )
        cell = self.cell(protocol or ids[0], column, group)
        if cell is None:
            known = [c.column for c in self.cells if c.protocol == (protocol or ids[0]) and c.group == group]
            reason = next((f": {m.reason}" for m in self.missing if m.column == column), "")
            where = f"{protocol or ids[0]}{f', {group}' if group else ''}"
            raise UsageError(
                f"'{column}' has no value under {where}{reason}",
                code="unknown-name",
                value=column,
                hint=suggest(column, known),
            )
        if cell.value is None:
            place = f"{cell.protocol}{f', {group}' if group else ''}"
            raise StatisticError(
                f"'{column}' has no value under {place}: {cell.undefined}",
                value=column,
                hint="To read the reason without an exception, use result.cell(protocol, column, group).undefined",
            )
        return cell.value

    def write(self, folder: PathGiven, *, escape_formulas: bool = False, by_source: bool = False) -> list[Path]:
        """Write CSV, JSON, Markdown and LaTeX files, as ``capbench correlate --out`` does.

        Args:
            folder: the folder of the files.
            escape_formulas: True to mark texts in CSV files that a spreadsheet would take for formulas.
            by_source: True to include the tables by group.

        Returns:
            The files.
        """
        from capbench.reports.markup import write_result

        return write_result(self, Path(folder), escape_formulas=escape_formulas, by_source=by_source)

    def to_latex(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
        daggers: bool = True,
        intervals: bool = True,
        by_source: bool = False,
    ) -> str:
        """The tables as LaTeX, for the packages booktabs and graphicx.

        Args:
            columns: the columns to show, in this order: names or titles of data sets, heads (``MM``), or parts of
                protocol ids; all by default.
            digits: digits after the decimal point of our values; by default one, or four without ``percent``.
            percent: False for correlations and accuracies as fractions, not × 100.
            bold: True to emphasise the best value of each column.
            daggers: True to mark metrics that are not significantly worse than the best, or not better than sentinels.
            intervals: True to show intervals, if there are any.
            by_source: True to include the tables by group.

        Raises:
            UsageError: no table has such a column; the choices are listed.
        """
        from capbench.reports.markup import to_latex
        from capbench.reports.table import TableStyle

        style = TableStyle.of(columns, digits, percent=percent, bold=bold, daggers=daggers, intervals=intervals)
        return to_latex(self, by_source=by_source, style=style)

    def to_markdown(
        self,
        *,
        columns: str | Sequence[str] | None = None,
        digits: int | None = None,
        percent: bool | None = None,
        bold: bool = True,
        daggers: bool = True,
        intervals: bool = True,
        by_source: bool = False,
    ) -> str:
        """The tables as Markdown; the arguments are those of :meth:`to_latex`, as for errors."""
        from capbench.reports.markup import to_markdown
        from capbench.reports.table import TableStyle

        style = TableStyle.of(columns, digits, percent=percent, bold=bold, daggers=daggers, intervals=intervals)
        return to_markdown(self, by_source=by_source, style=style)

    def to_frame(
        self, *, columns: str | Sequence[str] | None = None, digits: int | None = None, percent: bool | None = None
    ) -> pd.DataFrame:
        """A row for each number: protocol, group, column, ``value``, its interval, ``rank`` and ``top`` from tests.

        Args:
            columns: as for :meth:`to_latex`: the numbers of these columns of the tables.
            digits: digits after the decimal point; by default all.
            percent: True to multiply values by 100. By default correlations and accuracies are numbers from 0 to 1.

        Raises:
            UsageError: no table has such a column; the choices are listed.
        """
        import pandas as pd

        from capbench.reports.markup import cell_rows
        from capbench.reports.table import TableStyle
        from capbench.reports.tables import chosen_places
        from capbench.studies.results import Cell

        style = TableStyle.of(columns, digits, percent=percent)
        names = [*Cell.model_fields, "difference", "rank", "top", "own_model"]
        names += ["beats_sentinels"] if self.sentinels else []
        rows = cell_rows(self)
        if style.columns:
            shown = chosen_places(self, style)
            by_place = {place: [row for row in rows if (row["protocol"], row["group"]) == place] for place in shown}
            rows = [row for of_place in by_place.values() for row in of_place]
        numbers = ["value", "low", "high", "sd", "published", "published_sd", "difference", "chance"]
        return style.frame(pd.DataFrame(rows, columns=names), numbers)

    def cite(self) -> str:
        """A description for a paper: a sentence with protocol, amount of data, intervals and tests, and the
        BibTeX entries of data sets and metrics; see ``capbench correlate --cite``."""
        from capbench.reports.cite import cite_study

        return cite_study(self)

    def pairs_to_frame(self) -> pd.DataFrame:
        """A row for each test of two metrics; none without ``compare``."""
        import pandas as pd

        from capbench.stats.pairs import Pair

        rows = [
            {"protocol": tests.protocol, "group": tests.group, **dataclasses.asdict(pair), "test": tests.test}
            for tests in self.comparisons
            for pair in tests.pairs
        ]
        return pd.DataFrame(
            rows, columns=["protocol", "group", *(field.name for field in dataclasses.fields(Pair)), "test"]
        )

    def __repr__(self) -> str:
        where = ", ".join(info.id for info in self.protocols) or "nothing"
        missing = len(self.missing) + len(self.undefined)
        waiting = f", {missing} not computed" if missing else ""
        scored = {cell.column for cell in self.cells if cell.value is not None}
        return f"CorrelationResult({where}: {_listed(scored, self.columns)}{waiting}{ON_SAMPLE if self.sample else ''})"

    def __str__(self) -> str:
        from rich.console import Console

        from capbench.reports.markup import SAMPLE
        from capbench.reports.terminal import print_result

        text = io.StringIO()
        console = Console(file=text, width=200, highlight=False, force_jupyter=False, color_system=None)
        if self.sample:
            console.print(SAMPLE, markup=False)
        print_result(self, console, details=True)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        from capbench.reports.markup import to_html

        return to_html(self)


def _listed(scored: set[str], columns: Mapping[str, str]) -> str:
    return ", ".join(name for name in columns if name in scored) or "no numbers"

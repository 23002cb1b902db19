"""``capbench papers``: list the tables and figures of the five papers with their requirements, or reproduce them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.cli.study_flags import LeftOut
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.studies.papers import PaperItem, Prospect
    from capbench.studies.study import Study

_LABEL = re.compile(r"--model [^ =]+=")
_WIDTH, _KEY, _COUNTS = 80, 20, 8  # columns of the list, of an item's key and of its number of rows


@with_groups
def papers(
    *,
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Papers (tiger), tables or figures (tiger-table1), or 'all'. Default: list all."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Output folder, with a folder per table or figure.")
    ] = Path("results/papers"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and their expected time, and do nothing.")
    ] = False,
    left_out: LeftOut,
    bootstrap: common.BootstrapOption = None,
    again: Annotated[
        bool, typer.Option("--again", help="Repeat finished tables and figures even if their inputs are unchanged.")
    ] = False,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """List or reproduce the tables and figures of the papers.

    The papers are TIGEr, NNEval, REO, FAIEr and ViLBERTScore. The list shows which rows can be computed with the
    available data, features and models, and what the other rows require.

    With names, runs these tables and figures one after the other, each in its own folder; index.md shows all results.
    Finished ones are repeated only if an input changed or an output is damaged, and an interrupted run resumes. The
    synthetic sample is used only with --data sample.

    Exit code 1: done, but requirements of a table or figure are missing (listed). 2: one failed.

    Example: capbench papers

    Example: capbench papers tiger --features composite.h5 --model tiger=scan.safetensors

    Example: capbench papers all --dry-run

    Example: capbench papers all --without spice --bootstrap
    """
    from capbench.studies.papers import choose_items

    common.check_out_folder(out)
    root, without = inputs.root(), left_out.names
    chosen = choose_items(name or ())
    if name and root.is_sample and inputs.data is None:
        raise UsageError(
            "these tables and figures require the published data, and only the synthetic sample is available",
            code="missing-data",
            hint="Name the data folder with --data DIR or CAPBENCH_DATA, or use the sample with --data sample",
        )
    common.announce_root(root, json_output=json_output or bool(name))
    chosen = _with_metrics(chosen, inputs, without)
    examined = _examine(chosen, inputs, root, without, look=bool(name))
    _refuse_unused(inputs, examined)
    prospects = [one.prospect for one in examined]
    if not name:
        if json_output:
            common.print_json([_to_dict(prospect) for prospect in prospects])
        else:
            flags = [] if inputs.data is None else ["--data", str(inputs.data)]
            flags += [*_metric_flags(inputs), *(word for left_out in without or () for word in ("--without", left_out))]
            _print_list(prospects, flags, on_sample=root.is_sample and inputs.data is None)
            if inputs.features:
                common.note("features of single images are checked when an item runs")
        return
    from capbench.cli.paper_runs import run_items

    code = run_items(
        [(one.prospect, _flags(inputs, one, root)) for one in examined],
        out,
        again=again,
        dry_run=dry_run,
        json_output=json_output,
        report_flags=lambda names: _report_flags(inputs, names, root),
        bootstrap=bootstrap,
    )
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class _Takes:
    """Inputs that the metrics of an item accept.

    Attributes:
        names: labels and metrics that options and files can name.
        features: True if a metric reads region features.
        weights: True if a metric requires a model.
        columns: columns of the metrics, which options can name, too.
        options: options of the metrics.
        rows: for each row, all names under which it can be left out.
    """

    names: frozenset[str]
    features: bool
    weights: bool
    columns: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    rows: tuple[frozenset[str], ...] = ()

    def takes_option(self, text: str) -> bool:
        """True if ``NAME.OPTION=VALUE``, or ``OPTION=VALUE`` for all metrics, applies to one of them."""
        owner, _, option = text.partition("=")[0].rpartition(".")
        return owner in self.names or owner.lower() in self.columns if owner else option in self.options

    def left_out(self, without: Sequence[str]) -> tuple[str, ...]:
        """The names in ``without`` that are rows of the item."""
        known = frozenset().union(*self.rows)
        return tuple(name for name in without if name.lower() in known)


@dataclass(frozen=True)
class _Examined:
    """An item, the inputs that its metrics accept, and the omitted metrics."""

    prospect: Prospect
    takes: _Takes
    without: tuple[str, ...] = ()


def _with_metrics(chosen: Mapping[str, PaperItem], inputs: Cached, without: Sequence[str]) -> dict[str, PaperItem]:
    """The items that still have metrics without those in ``without``; the others are noted, as are unused names.

    Raises:
        UsageError: no item of any paper has a row of one of the names, or no item has a metric left.
    """
    from capbench.core.errors import suggest
    from capbench.studies.papers import choose_items, item_study

    if not without:
        return dict(chosen)
    taken = {key: _taken_by(_study_of_item(key, item, inputs)) for key, item in chosen.items()}
    known = frozenset().union(*(names for takes in taken.values() for names in takes.rows))
    unmatched = [name for name in without if name.lower() not in known]
    if unmatched:
        everything = (_taken_by(item_study(key, item)) for key, item in choose_items(()).items())
        known = frozenset().union(*(names for takes in everything for names in takes.rows))
    for name in unmatched:
        if name.lower() not in known:
            raise UsageError(
                f"--without {name}: no table or figure has such a metric",
                code="unknown-name",
                value=name,
                hint=suggest(name, sorted(text for text in known if "." not in text)),
            )
        common.note(f"--without {name} has no effect: only other tables and figures have such a row")
    names = {name.lower() for name in without}
    left = {key: item for key, item in chosen.items() if any(not row & names for row in taken[key].rows)}
    if not left:
        raise UsageError(
            "--without leaves no metric in any table or figure", code="too-few", hint="Leave out fewer metrics"
        )
    for key in chosen.keys() - left.keys():
        common.note(f"{key} is left out: --without leaves no metric in it")
    return left


def _examine(
    chosen: Mapping[str, PaperItem], inputs: Cached, root: DataRoot, without: Sequence[str], *, look: bool
) -> list[_Examined]:
    from dataclasses import replace

    from capbench.studies.papers import Unparsed, prospect

    examined, unparsed = [], Unparsed()
    with common.progress("checking requirements of tables and figures", len(chosen)) as step:
        for key, item in chosen.items():
            study = _study_of_item(key, item, inputs)
            takes = _taken_by(study)
            left_out = takes.left_out(without)
            study = replace(study, without=left_out)
            looked = prospect(key, item, study, root, look=look, unparsed=unparsed)
            examined.append(_Examined(looked, takes, left_out))
            step(1)
    return examined


def _study_of_item(key: str, item: PaperItem, inputs: Cached) -> Study:
    """The study of an item with the inputs that its metrics accept."""
    from capbench.api.resolve import with_inputs
    from capbench.studies.papers import item_study

    study = item_study(key, item)
    return with_inputs(study, _accepted(inputs, _taken_by(study)).values(), common.caller())


def _taken_by(study: Study) -> _Takes:
    from capbench.metrics.needs import Features, GivenModel, Parser, Resources
    from capbench.metrics.requests import resolve_metrics, split_label

    names: set[str] = set()
    needs: set[type] = set()
    columns: set[str] = set()
    options: set[str] = set()
    rows: dict[tuple[str, str], frozenset[str]] = {}
    resources = Resources(None, study.model, models=study.models)
    for requested in study.metrics:
        for named in resolve_metrics([requested]):
            names |= {named.label, named.metric.name}
            columns |= set(named.metric.columns)
            options |= {declared.name for declared in named.metric.option_type.declared()}
            needs |= {type(single) for need in named.metric.needs for single in need.each()}
            for row in named.rows:
                key = row.key
                aliases = [row.name, key.label, row.metric, f"{row.metric}.{key.column}"]
                # --without spice leaves out everything that requires parses.
                aliases += [Parser.metric] if named.takes_parses(resources) else []
                rows[key.label, key.column] = frozenset(name.lower() for name in aliases)
        names |= {label for label in (split_label(requested)[0],) if label}
    return _Takes(
        frozenset(names),
        Features in needs,
        any(issubclass(need, GivenModel) for need in needs),
        frozenset(columns),
        frozenset(options),
        tuple(rows.values()),
    )


def _accepted(inputs: Cached, takes: _Takes) -> Cached:
    """The inputs that an item's metrics accept; the item does not depend on the others."""
    from dataclasses import replace

    of_features = takes.names | ({""} if takes.features else frozenset())
    of_models = takes.names | ({""} if takes.weights else frozenset())
    return replace(
        inputs,
        features=[text for text in inputs.features or () if _owner(text) in of_features],
        model=[text for text in inputs.model or () if _owner(text) in of_models],
        option=[text for text in inputs.option or () if takes.takes_option(text)],
    )


def _owner(text: str) -> str:
    """NAME of ``NAME=FILE``; ``""`` without one (see :func:`capbench.cli.options.parse_files`)."""
    name, equals, _ = text.partition("=")
    return name if equals and not Path(text).exists() and "/" not in name and "\\" not in name else ""


def _refuse_unused(inputs: Cached, examined: Sequence[_Examined]) -> None:
    """Raise UsageError for inputs of a metric that no item has; note inputs that only other items accept."""
    from capbench.core.errors import suggest
    from capbench.studies.papers import choose_items, item_study

    names = frozenset().union(*(one.takes.names for one in examined))
    everywhere: frozenset[str] = frozenset()
    for text in inputs.option or ():
        if any(one.takes.takes_option(text) for one in examined):
            continue
        if not any(_taken_by(item_study(key, item)).takes_option(text) for key, item in choose_items(()).items()):
            owner = text.partition("=")[0].rpartition(".")[0]
            option = text.partition("=")[0]
            expected = f"row '{owner}'" if owner else f"metric with the option '{option}'"
            raise UsageError(
                f"--option {text}: no table or figure has a {expected}",
                code="unknown-name" if owner else "unknown-option",
                value=owner or option,
                hint="'capbench metrics NAME' lists a metric's options",
            )
        common.note(f"--option {text} has no effect: only other tables and figures have such a row")
    for flag, texts in (("--features", inputs.features), ("--model", inputs.model)):
        for text in texts or ():
            owner = _owner(text)
            if owner in ("", *names):
                continue
            if not everywhere:
                items = choose_items(()).items()
                everywhere = frozenset().union(*(_taken_by(item_study(key, item)).names for key, item in items))
            if owner not in everywhere:
                raise UsageError(
                    f"{flag} {text}: no table or figure has a row '{owner}'",
                    code="unknown-name",
                    value=owner,
                    hint=suggest(owner, sorted(everywhere)),
                )
            common.note(f"{flag} {text} has no effect: only other tables and figures have a row '{owner}'")


def _flags(inputs: Cached, examined: _Examined, root: DataRoot) -> list[str]:
    """The inputs as flags of an item's commands."""
    accepted = _accepted(inputs, examined.takes)
    flags = [] if root.is_sample and inputs.data is None else ["--data", str(root.path)]
    if root.is_sample:
        flags = ["--data", "sample"]
    flags += _metric_flags(accepted)
    # Commands without a study name the remaining metrics.
    if examined.prospect.item.study:
        flags += [word for name in examined.without for word in ("--without", name)]
    return [*flags, *(["--no-cache"] if inputs.no_cache else [])]


def _report_flags(inputs: Cached, names: Collection[str], root: DataRoot) -> list[str]:
    """The inputs of the metrics in a report as flags of ``capbench figure report``."""
    accepted = _accepted(inputs, _Takes(frozenset(names), features=True, weights=True))
    return ["--data", "sample" if root.is_sample else str(root.path), *_metric_flags(accepted)]


def _metric_flags(accepted: Cached) -> list[str]:
    texts = (("--features", accepted.features), ("--model", accepted.model), ("--option", accepted.option))
    return [word for flag, values in texts for value in values or () for word in (flag, value)]


def _to_dict(prospect: Prospect) -> dict[str, Any]:
    from capbench.studies.papers import papers
    from capbench.studies.results import OURS

    item = prospect.item
    return {
        "item": prospect.key,
        "paper": papers().papers[item.paper].title,
        "number": item.number,
        "title": item.title,
        "command": f"capbench {item.name}",
        "state": prospect.state,
        "rows": list(prospect.rows),
        "protocols": list(prospect.present),
        "waiting": dict(prospect.waiting),
        "absent": dict(prospect.absent),
        "stand_in": f"{OURS}: {item.ours}" if item.ours else None,
        "never": [papers().never[key] for key in item.never],
        "seconds": item.seconds,
    }


def _print_list(prospects: Sequence[Prospect], flags: Sequence[str], *, on_sample: bool) -> None:
    """Print for each paper the number of available rows and the next command, then its items, 80 columns wide.

    Args:
        prospects: the items, paper by paper.
        flags: the user's inputs, which the next command repeats.
        on_sample: True if the synthetic sample is used without a request, which items do not accept.
    """
    from capbench.studies.papers import papers
    from capbench.studies.results import OURS

    console = common.out()

    def say(text: str, indent: str = "", *, style: str = "") -> None:
        # A command or a path stays in one piece.
        wrapped = textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        console.print("\n".join(wrapped), markup=False, highlight=False, soft_wrap=True, style=style)

    by_paper: dict[str, list[Prospect]] = {}
    for prospect in prospects:
        by_paper.setdefault(prospect.item.paper, []).append(prospect)
    for paper, of_paper in by_paper.items():
        rows, total = (sum(counts) for counts in zip(*map(_row_counts, of_paper), strict=True))
        command = ["capbench", "data", "info"] if on_sample else ["capbench", "papers", paper, *flags]
        if not on_sample and not rows:
            command.append("--dry-run")  # lists what is missing
        head = f"{papers().papers[paper].title}: {rows} of {total} rows available; next:"
        if len(f"{head} {shlex.join(command)}") <= _WIDTH:
            say(f"{head} {shlex.join(command)}")
        else:  # a shell reads the lines of the command as one
            words = " ".join(shlex.quote(word).replace(" ", "\0") for word in command)
            lines = textwrap.wrap(words, _WIDTH - 6, break_long_words=False, break_on_hyphens=False)
            say(head)
            shown = "  " + " \\\n    ".join(lines).replace("\0", " ")
            console.print(shown, markup=False, highlight=False, soft_wrap=True)
        for prospect in of_paper:
            item = prospect.item
            counts = "{} of {}".format(*_row_counts(prospect))
            about = f"{item.number}: {item.title}{f' ({OURS})' if item.ours else ''}"
            if prospect.absent and prospect.present:
                protocols = len(prospect.present)
                about += f"; {protocols} of {protocols + len(prospect.absent)} protocols"
            say(f"  {prospect.key:<{_KEY}}  {counts:<{_COUNTS}}  {about}", " " * (_KEY + _COUNTS + 6))
        console.print()
    by_reason: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for prospect in prospects:
        for what, reason in prospect.reasons():
            # The reason names the row's label: without it, rows that require the same kind of model share a line.
            rows_and_items = by_reason.setdefault(_LABEL.sub("--model ROW=", reason), ({}, {}))
            rows_and_items[0][what] = rows_and_items[1][prospect.key] = None
    if by_reason:
        say("Missing requirements, with their rows and protocols, and items:", style="bold")
    for reason, (missing_rows, keys) in by_reason.items():
        say(f"  {reason}: {', '.join(missing_rows)} ({', '.join(keys)})", "    ", style="dim")
    never = dict.fromkeys(key for prospect in prospects for key in prospect.item.never)
    if never:
        say("Not published, so not reproducible:", style="bold")
    for key in never:
        say(f"  {papers().never[key]}", "    ", style="dim")
    common.note("run one with 'capbench papers NAME', all with 'capbench papers all'")


def _row_counts(prospect: Prospect) -> tuple[int, int]:
    """Numbers of available rows and of all rows of an item."""
    available = len(prospect.rows) if prospect.is_computable else 0
    return available, len(prospect.rows) + len(prospect.waiting)

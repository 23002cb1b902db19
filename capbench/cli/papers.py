"""``capbench papers``: every table and figure of five papers, what is needed for it, and one command for all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.studies.papers import PaperItem, Prospect
    from capbench.studies.study import Study

__all__ = ["papers"]

_LABEL = re.compile(r"--model [^ =]+=")
_STATES = {"all": "all rows", "part": "in part", "waits": "waits"}


@with_groups
def papers(
    *,
    name: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Papers (tiger), tables or figures (tiger-table1), or 'all'. Without: list them."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the results: a folder each, and one page of all.")
    ] = Path("results/papers"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done and how long it takes, and do nothing.")
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="NAME",
            help="Leave this metric, label or column out of all of them (spice, which parses every caption once); "
            "repeatable.",
        ),
    ] = None,
    bootstrap: Annotated[
        int | None,
        typer.Option(
            "--bootstrap",
            metavar="N",
            min=100,
            help="Bootstrap intervals of all tables' numbers from N resamples (1000 is usual); the papers print none.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Do what is finished again, even if nothing that it depends on changed.")
    ] = False,
    given: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """List the tables and figures of TIGEr, NNEval, REO, FAIEr and ViLBERTScore with their commands, or run them.

    The list says of each what can be computed with the data, features and models at hand, and what waits for what; what
    nobody can have is said once, below. --features and --model take part in the list, too.

    With names, these tables and figures are made one after the other, each in a folder of its own; what one of them
    cannot do stops no other. What is finished is not done again unless something that it depends on changed (a file, a
    study, what metrics are given) or a file that it wrote is damaged. An interrupted run goes on where it was. A page,
    index.md, shows all results. The synthetic sample is used only if --data sample is given.

    Exit code 1: done, but a table or figure waits for something, in part or as a whole (listed). 2: one failed.

    Example: capbench papers

    Example: capbench papers tiger --features composite.h5 --model tiger=scan.safetensors

    Example: capbench papers all --dry-run

    Example: capbench papers all --without spice --bootstrap 1000
    """
    from capbench.studies.papers import choose_items

    common.check_out_folder(out)
    root = given.root()
    chosen = choose_items(name or ())
    if name and root.is_sample and given.data is None:
        raise UsageError(
            "these tables and figures need the published data, and only the synthetic sample is here",
            hint="Give the data folder with --data DIR or CAPBENCH_DATA, or make them of the sample with --data sample",
        )
    common.announce_root(root, json_output=json_output or bool(name))
    chosen = _with_metrics(chosen, given, without or ())
    looked = _looked_at(chosen, given, root, without or (), look=bool(name))
    _refuse_unused(given, looked)
    prospects = [one.prospect for one in looked]
    if not name:
        if json_output:
            common.print_json([_to_dict(prospect) for prospect in prospects])
        else:
            _print_list(prospects)
            if given.features:
                common.note(
                    "which images have features is looked at when an item is made: rows wait where some have none"
                )
        return
    from capbench.cli.paper_runs import run_items

    code = run_items(
        [(one.prospect, _flags(given, one, root)) for one in looked],
        out,
        again=again,
        dry_run=dry_run,
        json_output=json_output,
        report_flags=lambda names: _report_flags(given, names, root),
        bootstrap=bootstrap,
    )
    if code:
        raise typer.Exit(code)


@dataclass(frozen=True)
class _Takes:
    """What the metrics of an item can be given.

    Attributes:
        names: labels and metrics, under which something may be given.
        features: whether one of them looks at images.
        weights: whether one of them needs a model.
        columns: their columns, under which options may be given, too.
        options: the options that they have.
        rows: of each row all names under which it can be left out.
    """

    names: frozenset[str]
    features: bool
    weights: bool
    columns: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    rows: tuple[frozenset[str], ...] = ()

    def takes_option(self, text: str) -> bool:
        """Whether ``NAME.OPTION=VALUE`` is for one of them; ``OPTION=VALUE`` is for all that have it."""
        owner, _, option = text.partition("=")[0].rpartition(".")
        return owner in self.names or owner.lower() in self.columns if owner else option in self.options

    def left_out(self, without: Sequence[str]) -> tuple[str, ...]:
        """Those of some names that are rows of the item."""
        known = frozenset().union(*self.rows)
        return tuple(name for name in without if name.lower() in known)


@dataclass(frozen=True)
class _Looked:
    """An item, what its metrics can be given, and which of them are left out."""

    prospect: Prospect
    takes: _Takes
    without: tuple[str, ...] = ()


def _with_metrics(chosen: Mapping[str, PaperItem], given: Cached, without: Sequence[str]) -> dict[str, PaperItem]:
    """The items of which metrics are left; the others, and names that only other items have, are told.

    Raises:
        UsageError: no item of any paper has a row of one of the names, or nothing is left of any.
    """
    from capbench.core.errors import suggest
    from capbench.studies.papers import choose_items, item_study

    if not without:
        return dict(chosen)
    taken = {key: _taken_by(_given_study(key, item, given)) for key, item in chosen.items()}
    known = frozenset().union(*(names for takes in taken.values() for names in takes.rows))
    strange = [name for name in without if name.lower() not in known]
    if strange:
        everything = (_taken_by(item_study(key, item)) for key, item in choose_items(()).items())
        known = frozenset().union(*(names for takes in everything for names in takes.rows))
    for name in strange:
        if name.lower() not in known:
            raise UsageError(
                f"--without {name}: none of the tables and figures has such a metric",
                hint=suggest(name, sorted(text for text in known if "." not in text)),
            )
        common.note(f"--without {name} is not needed here: only other tables and figures have such a row")
    names = {name.lower() for name in without}
    left = {key: item for key, item in chosen.items() if not without or any(not row & names for row in taken[key].rows)}
    if not left:
        raise UsageError("--without leaves no metric of any table or figure", hint="Leave fewer out")
    for key in chosen.keys() - left.keys():
        common.note(f"{key} is left out: --without leaves no metric of it")
    return left


def _looked_at(
    chosen: Mapping[str, PaperItem], given: Cached, root: DataRoot, without: Sequence[str], *, look: bool
) -> list[_Looked]:
    from dataclasses import replace

    from capbench.studies.papers import prospect

    looked = []
    with common.progress("what is at hand for tables and figures", len(chosen)) as step:
        for key, item in chosen.items():
            study = _given_study(key, item, given)
            takes = _taken_by(study)
            left_out = takes.left_out(without)
            asked = replace(study, without=left_out)
            looked.append(_Looked(prospect(key, item, asked, root, look=look), takes, left_out))
            step(1)
    return looked


def _given_study(key: str, item: PaperItem, given: Cached) -> Study:
    """The study of an item, with what is given to its metrics."""
    from capbench.api.resolve import with_inputs
    from capbench.studies.papers import item_study

    study = item_study(key, item)
    return with_inputs(study, _kept(given, _taken_by(study)).values(), common.caller())


def _taken_by(study: Study) -> _Takes:
    from capbench.metrics.base import Resources
    from capbench.metrics.needs import Features, GivenModel, Parser
    from capbench.metrics.requests import resolve_metrics, split_label

    names: set[str] = set()
    needs: set[type] = set()
    columns: set[str] = set()
    options: set[str] = set()
    rows: dict[tuple[str, str], frozenset[str]] = {}
    resources = Resources(None, study.model, models=study.models)
    for asked in study.metrics:
        for named in resolve_metrics([asked]):
            names |= {named.label, named.metric.name}
            columns |= set(named.metric.columns)
            options |= {declared.name for declared in named.metric.option_type.declared()}
            needs |= {type(single) for need in named.metric.needs for single in need.each()}
            for row in named.rows:
                key = row.key
                called = [row.name, key.label, row.metric, f"{row.metric}.{key.column}"]
                # Whoever leaves SPICE out wants no parses.
                called += [Parser.metric] if named.takes_parses(resources) else []
                rows[key.label, key.column] = frozenset(name.lower() for name in called)
        names |= {label for label in (split_label(asked)[0],) if label}
    return _Takes(
        frozenset(names),
        Features in needs,
        any(issubclass(need, GivenModel) for need in needs),
        frozenset(columns),
        frozenset(options),
        tuple(rows.values()),
    )


def _kept(given: Cached, takes: _Takes) -> Cached:
    """What is given, without what an item's metrics have no use for: it would not change with that."""
    from dataclasses import replace

    of_features = takes.names | ({""} if takes.features else frozenset())
    of_models = takes.names | ({""} if takes.weights else frozenset())
    return replace(
        given,
        features=[text for text in given.features or () if _owner(text) in of_features],
        model=[text for text in given.model or () if _owner(text) in of_models],
        option=[text for text in given.option or () if takes.takes_option(text)],
    )


def _owner(text: str) -> str:
    """The name that a ``NAME=FILE`` is for; ``""`` for all (see :func:`capbench.cli.options.parse_files`)."""
    name, equals, _ = text.partition("=")
    return name if equals and not Path(text).exists() and "/" not in name and "\\" not in name else ""


def _refuse_unused(given: Cached, looked: Sequence[_Looked]) -> None:
    """Raise UsageError for what is given to a metric that no item has; what is for others than these is told."""
    from capbench.core.errors import suggest
    from capbench.studies.papers import choose_items, item_study

    names = frozenset().union(*(one.takes.names for one in looked))
    everywhere: frozenset[str] = frozenset()
    for text in given.option or ():
        if any(one.takes.takes_option(text) for one in looked):
            continue
        if not any(_taken_by(item_study(key, item)).takes_option(text) for key, item in choose_items(()).items()):
            owner = text.partition("=")[0].rpartition(".")[0]
            what = f"a row '{owner}'" if owner else f"a metric with the option '{text.partition('=')[0]}'"
            raise UsageError(
                f"--option {text}: none of these tables and figures has {what}",
                hint="'capbench metrics NAME' lists a metric's options",
            )
        common.note(f"--option {text} is not needed here: only other tables and figures have such a row")
    for flag, texts in (("--features", given.features), ("--model", given.model)):
        for text in texts or ():
            owner = _owner(text)
            if owner in ("", *names):
                continue
            if not everywhere:
                items = choose_items(()).items()
                everywhere = frozenset().union(*(_taken_by(item_study(key, item)).names for key, item in items))
            if owner not in everywhere:
                raise UsageError(
                    f"{flag} {text}: none of these tables and figures has a row '{owner}'",
                    hint=suggest(owner, sorted(everywhere)),
                )
            common.note(f"{flag} {text} is not needed here: only other tables and figures have a row '{owner}'")


def _flags(given: Cached, looked: _Looked, root: DataRoot) -> list[str]:
    """What is given, as flags of the commands that make an item; files by whole paths."""
    kept = _kept(given, looked.takes)
    flags = [] if root.is_sample and given.data is None else ["--data", str(root.path)]
    if root.is_sample:
        flags = ["--data", "sample"]
    for flag, texts in (("--features", kept.features), ("--model", kept.model), ("--option", kept.option)):
        flags += [word for text in texts or () for word in (flag, text)]
    # Commands without a study name the metrics that are left.
    if looked.prospect.item.study:
        flags += [word for name in looked.without for word in ("--without", name)]
    return [*flags, *(["--no-cache"] if given.no_cache else [])]


def _report_flags(given: Cached, names: Collection[str], root: DataRoot) -> list[str]:
    """What is given to metrics of some labels, as flags of ``capbench report``."""
    kept = _kept(given, _Takes(frozenset(names), features=True, weights=True))
    flags = ["--data", "sample" if root.is_sample else str(root.path)]
    for flag, texts in (("--features", kept.features), ("--model", kept.model), ("--option", kept.option)):
        flags += [word for text in texts or () for word in (flag, text)]
    return flags


def _to_dict(prospect: Prospect) -> dict[str, Any]:
    from capbench.studies.papers import OURS, papers

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


def _print_list(prospects: Sequence[Prospect]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from capbench.studies.papers import OURS, papers

    console = common.out()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("item", "number", "shows", "at hand", "command"):
        table.add_column(head, overflow="fold", no_wrap=head in ("item", "number"))
    by_paper = ""
    for prospect in prospects:
        item = prospect.item
        if item.paper != by_paper:
            by_paper = item.paper
            table.add_row(Text(papers().papers[by_paper].title, style="bold"))
        shown = f"{item.title} ({OURS})" if item.ours else item.title
        table.add_row(prospect.key, item.number, Text(shown), _at_hand(prospect), f"capbench {item.name}")
    console.print(table)
    by_reason: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for prospect in prospects:
        for what, reason in prospect.reasons():
            # A row's model has its label in the hint: one line for all that want the same kind.
            rows, keys = by_reason.setdefault(_LABEL.sub("--model ROW=", reason), ({}, {}))
            rows[what] = keys[prospect.key] = None
    if by_reason:
        console.print("What is waited for, by which rows and protocols, in which items:", style="bold")
    for reason, (rows, keys) in by_reason.items():
        line = f"  {reason}: {', '.join(rows)} ({', '.join(keys)})"
        console.print(line, markup=False, soft_wrap=True, style="dim")
    never = dict.fromkeys(key for prospect in prospects for key in prospect.item.never)
    if never:
        console.print("What nobody can have, since it was not published:", style="bold")
    for key in never:
        console.print(f"  {papers().never[key]}", markup=False, soft_wrap=True, style="dim")
    common.note("run one with 'capbench papers NAME', all with 'capbench papers all'")


def _at_hand(prospect: Prospect) -> str:
    rows, protocols = len(prospect.rows), len(prospect.present)
    told = []
    if prospect.waiting:
        told.append(f"{rows} of {rows + len(prospect.waiting)} rows")
    if prospect.absent and prospect.present:
        told.append(f"{protocols} of {protocols + len(prospect.absent)} protocols")
    in_numbers = f": {', '.join(told)}" if told and prospect.state == "part" else ""
    return _STATES[prospect.state] + in_numbers

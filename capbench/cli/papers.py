"""``capbench papers``: list the tables and figures of the five papers with their requirements, or reproduce them."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli.options import Inputs, LeftOut, argument, named_file
from capbench.core.arguments import Bootstrap, Help
from capbench.core.errors import CapbenchError, StudyError, UsageError, missing_package

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.studies.papers import PaperItem, Prospect

_WIDTH, _KEY, _COUNTS = 80, 20, 8  # columns of the list, of an item's key and of its number of rows
_LABEL = re.compile(r"--model [^ =]+=")
_INTERRUPTED = 130


def papers(
    *,
    name: Annotated[
        list[str] | None,
        argument("NAME", "Papers (tiger), tables or figures (tiger-table1), or 'all'. Default: list all."),
    ] = None,
    out: Annotated[Path, common.output("Output folder, with a folder per table or figure.", "DIR")] = Path(
        "results/papers"
    ),
    dry_run: Annotated[bool, Help("Print the commands and their expected time, and do nothing.")] = False,
    left_out: LeftOut,
    bootstrap: Bootstrap | None = None,
    inputs: Inputs,
    json_output: common.JsonOption = False,
) -> None:
    """List or reproduce the tables and figures of the papers.

    The papers are TIGEr, NNEval, REO, FAIEr and ViLBERTScore. The list shows which rows can be computed with the
    available data, features and models, and what the other rows require.

    With names, runs the commands of these tables and figures one after the other, each with its own output and folder;
    report.html shows all tables. Scores are cached, so the same command resumes an interrupted run. The synthetic
    sample is used only with --data sample.

    Exit code 1: done, but a part is missing or failed (listed).

    Example: capbench papers tiger --features composite.h5 --model tiger=scan.safetensors

    Example: capbench papers all --without spice --bootstrap
    """
    from capbench.core.progress import words
    from capbench.studies.papers import choose_items, command_lines

    common.check_out_folder(out)
    root = inputs.root()
    chosen = choose_items(name or ())
    if name and root.is_sample and inputs.data is None:
        raise UsageError(
            "these tables and figures require the published data, and only the synthetic sample is available",
            code="missing-data",
            hint="Name the data folder with --data DIR or CAPBENCH_DATA, or use the sample with --data sample",
        )
    common.announce_root(root, json_output=json_output or bool(name))
    examined = _examine(chosen, inputs, left_out.names, root)
    todo = [(looked, command_lines(looked, flags, out / looked.key, bootstrap)) for looked, flags in examined]
    if name and not dry_run:
        if _run(todo, inputs, root, out, json_output=json_output):
            raise typer.Exit(1)
    elif json_output:
        common.answer(True, [_to_dict(looked, commands) for looked, commands in todo], ())
    elif not name:
        _print_list([looked for looked, _ in todo])
    else:
        for looked, commands in todo:
            print(f"# {looked.key}: {words(looked.item.seconds) if commands else 'requirements missing'}")
            for command in commands:
                print(shlex.join(["capbench", *command]))


def _examine(
    chosen: Mapping[str, PaperItem], inputs: Inputs, without: Sequence[str], root: DataRoot
) -> list[tuple[Prospect, list[str]]]:
    """The items with a metric left, each with the flags of its commands.

    Raises UsageError if an input or a name in ``without`` applies to none of them, or no item has a metric left.
    """
    from capbench.api.resolve import with_inputs
    from capbench.metrics.requests import labels_of, resolve_metrics
    from capbench.studies.papers import item_study, prospect

    examined: list[tuple[Prospect, list[str]]] = []
    used: set[str] = set()
    with common.progress("checking requirements of tables and figures", len(chosen)) as step:
        for key, item in chosen.items():
            step(1)
            study = item_study(key, item)
            metrics = [named.metric for asked in study.metrics for named in resolve_metrics([asked])]
            names = {name for metric in metrics for name in (metric.name, *metric.columns)}
            options = {declared.name for metric in metrics for declared in metric.option_type.declared()}
            fitting = _of_metrics(inputs, {"", *labels_of(study.metrics), *names}, options)
            used |= set(map(" ".join, _texts(fitting)))
            study = replace(with_inputs(study, fitting.values(), common.caller()), without=tuple(without))
            try:
                looked = prospect(key, item, study, root)
            except StudyError as error:
                if error.code != "too-few":
                    raise
                used |= {f"--without {name}" for name in without}
                common.note(f"{key} is left out: --without leaves no metric in it")
                continue
            used |= {f"--without {name}" for name in looked.without}
            flags = _flags(fitting, root)
            flags += [] if inputs.image_root is None else ["--image-root", str(inputs.image_root)]
            # The commands of an item without a study name the remaining metrics.
            flags += [word for name in looked.without if item.study for word in ("--without", name)]
            examined.append((looked, flags))
    for flag, text in [*_texts(inputs), *(("--without", name) for name in without)]:
        if f"{flag} {text}" not in used:
            raise UsageError(
                f"{flag} {text}: none of these tables and figures has such a row or option",
                code="unknown-name",
                value=text if flag == "--without" else text.partition("=")[0],
                hint="'capbench papers' lists all rows, 'capbench metrics NAME' a metric's options",
            )
    if not examined:
        raise UsageError("--without leaves no metric in any of these", code="too-few", hint="Leave out fewer metrics")
    return examined


def _of_metrics(inputs: Inputs, names: Collection[str], options: Collection[str] = ()) -> Inputs:
    """The inputs that belong to metrics with these names and options; commands refuse others."""

    def takes(text: str) -> bool:
        owner, _, option = text.partition("=")[0].rpartition(".")
        return owner in names or owner.lower() in names if owner else option in options

    features, model = (
        [text for text in files or () if named_file(text)[0] in names] for files in (inputs.features, inputs.model)
    )
    return replace(inputs, features=features, model=model, option=[*filter(takes, inputs.option or ())])


def _texts(inputs: Inputs) -> list[tuple[str, str]]:
    given = (("--features", inputs.features), ("--model", inputs.model), ("--option", inputs.option))
    return [(flag, text) for flag, texts in given for text in texts or ()]


def _flags(inputs: Inputs, root: DataRoot) -> list[str]:
    return ["--data", "sample" if root.is_sample else str(root.path), *itertools.chain(*_texts(inputs))]


def _run(
    todo: Sequence[tuple[Prospect, list[list[str]]]], inputs: Inputs, root: DataRoot, out: Path, *, json_output: bool
) -> bool:
    """Run commands in this process, then list what is missing, and write the report; True if a part is missing."""
    from capbench.core.progress import words

    runs: list[dict[str, Any]] = []
    results: list[Path] = []
    to_run = [looked.key for looked, commands in todo if commands]
    with contextlib.redirect_stdout(sys.stderr) if json_output else contextlib.nullcontext():
        for looked, commands in todo:
            codes: list[int] = []
            missing = dict(looked.missing)
            if commands:
                place = f"{to_run.index(looked.key) + 1} of {len(to_run)}"
                remark = f"; {looked.item.note}" if looked.item.note else ""
                common.note(f"{looked.key} ({place}), {words(looked.item.seconds)} for a first run{remark}")
            for command in commands:
                common.note(f"$ {shlex.join(['capbench', *command])}")
                code, error = _call(command)
                codes.append(code)
                missing |= {shlex.join(command[:3]): error} if error else {}
            result = out / looked.key / "results.json"
            results += [result] if codes and max(codes) < 2 and result.is_file() else []
            runs.append(_to_dict(looked, commands) | {"codes": codes, "missing": missing})
        if results:
            of_data = _flags(_of_metrics(inputs, ()), root)
            _call(["figure", "report", *map(str, results), *of_data, "--out", str(out / "report.html")])
    incomplete = [run["item"] for run in runs if run["missing"] or any(run["codes"])]
    common.answer(json_output, runs, ())
    for line in _reasons(run["missing"] for run in runs):
        common.note(line)
    listed = f"; a part is missing of {', '.join(incomplete)}" if incomplete else ""
    common.note(f"complete: {len(runs) - len(incomplete)} of {common.count(len(runs), 'item')}{listed}")
    return bool(incomplete)


def _call(command: Sequence[str]) -> tuple[int, str]:
    """Run ``capbench COMMAND`` in this process: its exit code, and its error. Raises typer.Exit if interrupted."""
    from capbench.cli.app import app

    try:
        code = app(list(command), standalone_mode=False) or 0
    except (CapbenchError, ModuleNotFoundError) as failure:
        error = failure if isinstance(failure, CapbenchError) else missing_package(failure)
        if error is None:
            raise
        common.note(f"error: {error}")
        return error.exit_code, str(error)
    if code == _INTERRUPTED:
        raise typer.Exit(_INTERRUPTED)
    return code, ""


def _to_dict(looked: Prospect, commands: Sequence[Sequence[str]]) -> dict[str, Any]:
    from capbench.studies.papers import papers
    from capbench.studies.results import OURS

    item = looked.item
    return {
        "item": looked.key,
        "paper": papers().papers[item.paper],
        **item.model_dump(include={"number", "title", "seconds"}),
        "commands": [["capbench", *command] for command in commands],
        "rows": list(looked.rows) if looked.is_computable else [],
        "protocols": list(looked.present),
        "waiting": dict(looked.waiting),
        "absent": dict(looked.absent),
        "stand_in": f"{OURS}: {item.ours}" if item.ours else None,
        "never": [papers().never[key] for key in item.never],
    }


def _print_list(prospects: Sequence[Prospect]) -> None:
    from capbench.studies.papers import papers
    from capbench.studies.results import OURS

    paper = ""
    for looked in prospects:
        item = looked.item
        if item.paper != paper:
            paper = item.paper
            print(f"{papers().papers[paper]} (capbench papers {paper})")
        available = len(looked.rows) if looked.is_computable else 0
        counts = f"{available} of {len(looked.rows) + len(looked.waiting)}"
        about = f"{item.number}: {item.title}{f' ({OURS})' if item.ours else ''}"
        print(_wrapped(f"  {looked.key:<{_KEY}}  {counts:<{_COUNTS}}  {about}", _KEY + _COUNTS + 6))
    if reasons := _reasons(looked.missing for looked in prospects):
        print("Missing requirements, with their rows and protocols:", *reasons, sep="\n")
    never = dict.fromkeys(key for looked in prospects for key in looked.item.never)
    print("Not published, so not reproducible:" if never else "")
    print(*(_wrapped(f"  {papers().never[key]}") for key in never), sep="\n")
    common.note("run one with 'capbench papers NAME', all with 'capbench papers all'")


def _reasons(missing: Iterable[Mapping[str, str]]) -> list[str]:
    """A line for each reason, with the rows and protocols of all items that it is missing for."""
    by_reason: dict[str, dict[str, None]] = {}
    for what, reason in (pair for of_item in missing for pair in of_item.items()):
        # The reason names the row's label: without it, rows that require the same kind of model share a line.
        by_reason.setdefault(_LABEL.sub("--model ROW=", reason), {})[what] = None
    return [_wrapped(f"  {why}: {', '.join(rows)}") for why, rows in by_reason.items()]


def _wrapped(text: str, indent: int = 4) -> str:
    # A command or a path stays in one piece.
    return textwrap.fill(text, _WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)

"""``capbench compare-systems``: test captioning systems against each other on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from capbench.cli import common
from capbench.cli.options import Cached, with_groups
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.studies.systems import SystemComparison

_Test = Literal["permutation", "bootstrap"]
_METRICS = ("bleu-4", "rouge-l", "meteor", "cider")


@with_groups
def compare_systems(
    *,
    systems: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]FILE",
            help="Captions of two or more systems, the baseline first. Default name: the file's.",
        ),
    ],
    references: Annotated[
        Path,
        typer.Option(
            "--references",
            metavar="FILE",
            help="References: annotations of COCO, nocaps or Karpathy, {image: [..]} JSON, JSONL, CSV, .token.txt.",
        ),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help=f"Metric or column, or 'all'; repeatable, or a list. Default: {', '.join(_METRICS)}.",
            show_default=False,
        ),
    ] = None,
    test: Annotated[
        _Test, typer.Option("--test", help="Test of each pair of systems, paired by image.")
    ] = "permutation",
    bootstrap: common.BootstrapOption = None,
    permutations: common.PermutationsOption = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of resamples and permutations.")] = 0,
    correction: Annotated[
        common.Correction, typer.Option("--correction", help="Correction for the number of comparisons.")
    ] = "holm",
    all_pairs: Annotated[
        bool, typer.Option("--all-pairs", help="Compare all pairs of systems, not only each with the baseline.")
    ] = False,
    fail_if_worse: Annotated[
        bool,
        typer.Option(
            "--fail-if-worse", help="Exit code 3 if a system is significantly worse than the baseline in any metric."
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the comparison: .csv, .json, .md or .tex."),
    ] = None,
    examples: Annotated[
        int,
        typer.Option("--examples", min=0, help="List N images per metric: the largest differences between captions."),
    ] = 0,
    keep_first: common.KeepFirstOption = False,
    split: common.SplitOption = None,
    restrict: common.RestrictOption = False,
    inputs: Cached,
    json_output: common.JsonOption = False,
) -> None:
    """Test whether captioning systems differ in a metric.

    Each file has one caption for each of the same images. Prints corpus scores with 95 % bootstrap intervals over
    images, and one sentence for each pair of systems. See docs/statistics.md.

    Example: capbench compare-systems baseline.json new.json --references captions_val2014.json -m cider

    Example: capbench compare-systems old=a.json new=b.json --references refs.json --test bootstrap --fail-if-worse
    """
    from capbench.api.comparing import system_comparison
    from capbench.core.files import check_writable
    from capbench.reports.systems import write_systems
    from capbench.stats.significance import PERMUTATIONS

    if out is not None:
        if out.suffix.lower() not in (".csv", ".json", ".md", ".tex"):
            raise UsageError(
                f"--out {out} has an unknown extension",
                code="wrong-value",
                value=out.suffix,
                hint="Use .csv, .json, .md or .tex",
            )
        check_writable(out)
    if test == "bootstrap":
        common.refuse_options({"permutations": permutations}, "does not apply to --test bootstrap")
    comparison = system_comparison(
        [_named(text) for text in systems],
        references,
        metric or _METRICS,
        inputs.values(),
        common.caller(json_output=json_output),
        test=test,
        correction=correction,
        resamples=bootstrap,
        permutations=permutations or PERMUTATIONS,
        seed=seed,
        all_pairs=all_pairs,
        examples=examples,
        keep_first=keep_first,
        split=split,
        restrict=restrict,
    )
    _note_more_draws(comparison, bootstrap if test == "bootstrap" else permutations)
    document, worse = comparison.as_json(), comparison.worse()
    if fail_if_worse:
        named = [{"system": pair.system, "score": pair.score} for pair in worse]
        document["fail_if_worse"] = {"worse": named, "passed": not worse}
    if json_output:
        common.print_json(document)
    else:
        _print(comparison)
    for line in comparison.warnings:
        common.warn(line)
    if out is not None:
        write_systems(comparison, document, out)
        common.note(f"wrote {out}")
    if fail_if_worse and worse:
        for pair in worse:
            title = comparison.titles[pair.score]
            common.note(f"{pair.system} scores significantly lower than {pair.other} in {title}")
        raise typer.Exit(common.BELOW_BAR)


def _named(text: str) -> tuple[str, Path]:
    """A system's name and file."""
    name, equals, file = text.partition("=")
    # A path may contain '=': the part before it is a name only without a path separator.
    if not equals or not name or not file or Path(text).exists() or "/" in name or "\\" in name:
        return Path(text).stem, Path(text)
    return name, Path(file)


def _note_more_draws(comparison: SystemComparison, requested: int | None) -> None:
    table = comparison.table
    used, noun = table.resamples, "resamples"
    if table.permutations is not None:
        used, noun = table.permutations, "permutations"
    if requested is not None and used > requested:
        pairs = common.count(len(table.pairs), "comparison")
        common.note(f"{used:,} {noun} were used: {requested:,} are too few for {pairs}")


def _print(comparison: SystemComparison) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from capbench.core.records import signature_lines
    from capbench.reports.systems import fixed_notes, print_examples, system_name, system_sentence

    table = comparison.table
    shown = Table(title=f"{comparison.images:,} images", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in ("metric", "system"):
        shown.add_column(head, overflow="fold")
    for head in ("corpus", "95 % interval"):
        shown.add_column(head, justify="right", no_wrap=True)
    for score, title in comparison.titles.items():
        for place, system in enumerate(comparison.systems):
            interval = table.intervals[score][system]
            cells = [f"{interval.value:.4f}", f"{interval.low:.4f} – {interval.high:.4f}"]
            last = place == len(comparison.systems) - 1
            shown.add_row("" if place else title, escape(system_name(system, comparison)), *cells, end_section=last)
    console = common.out()
    console.print(shown)
    for pair in table.pairs:
        console.print(system_sentence(pair, comparison), markup=False, soft_wrap=True)
    print_examples(comparison, console)
    fixed = fixed_notes(comparison.fixed, comparison.titles)
    for line in (*fixed, *signature_lines(comparison.signatures), comparison.signature):
        console.print(line, style="dim", markup=False, soft_wrap=True)

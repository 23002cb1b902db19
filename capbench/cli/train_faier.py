"""``capbench train faier``: train the network behind FAIEr, a row of its Table 4 or all of them, or measure recall."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.errors import UsageError, suggest

if TYPE_CHECKING:
    from capbench.training.faier.config import FaierTraining

__all__ = ["faier"]


def faier(
    config: shared.ConfigArgument,
    out: shared.OutOption = None,
    data: common.DataOption = None,
    features: shared.FeaturesOption = None,
    captions: shared.CaptionsOption = None,
    seed: shared.SeedOption = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="ROW",
            help="A row of the paper's Table 4, instead of what the file says: fier, aier-4-ref, fier-aier-4-ref, "
            "faier-rel-4-ref, faier-4-ref, faier-rel-1-ref, faier-1-ref, faier-rel-r-ref or faier-r-ref; also names "
            "the folder NAME-ROW.",
        ),
    ] = None,
    all_variants: Annotated[
        bool, typer.Option("--all-variants", help="All nine rows, one after the other, each in a folder NAME-ROW.")
    ] = False,
    change: shared.SetOption = None,
    restart: shared.RestartOption = False,
    evaluate: shared.EvaluateOption = None,
    model: shared.MeasuredModelOption = None,
    images: shared.ImagesOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Train FAIEr on captions, their scene graphs and region features, or go on with an interrupted training.

    Captions that never were parsed are parsed by SPICE's parser first, each once in its life ('capbench setup spice').
    Ctrl-C saves a checkpoint; the same command goes on from there and ends with the same weights as an undisturbed
    run. Paths are looked for in the current folder, then in the data folder.

    Example: capbench train faier faier-flickr8k --seed 2

    Example: capbench train faier faier-flickr8k --variant faier-rel-r-ref

    Example: capbench train faier faier-flickr8k --seed 2 --evaluate test
    """
    from capbench.training.faier.config import TABLE_4, FaierTraining, row_changes
    from capbench.training.faier.trainer import train_faier

    shared.check_evaluate(evaluate, False, model=model, images=images)
    if evaluate is not None and (restart or all_variants):
        raise UsageError("--evaluate measures one model and trains none", hint="Leave --restart and --all-variants out")
    if all_variants and variant is not None:
        raise UsageError("--all-variants trains every row, --variant one", hint="Give one of the two")
    if variant is not None and variant not in TABLE_4:
        raise UsageError(f"--variant {variant}: there is no such row", hint=suggest(variant, list(TABLE_4)))
    rows: list[str | None] = list(TABLE_4) if all_variants else [variant]
    planned: list[shared.Asked[FaierTraining]] = []
    for row in rows:
        changes = [*([] if row is None else row_changes(row)), *(change or [])]
        place = None if all_variants else out
        asked = shared.ask(FaierTraining, config, place, data, seed, changes, features, captions)
        if row is not None and (out is None or all_variants):
            asked = dataclasses.replace(asked, run=(out or asked.run.parent) / f"{asked.run.name}-{row}")
        planned.append(asked)
    first = planned[0]
    first.announce(json_output)
    if evaluate is not None:
        with first.telling_how_features_are_made():
            _evaluate(first, model, evaluate, images, json_output)
        return
    if all_variants:
        _train_all(planned, restart, json_output)
        return
    result = first.train(train_faier, _line, restart)
    shared.tell_result(result, "recall", json_output, show=_print_by_references)


def _train_all(planned: list[shared.Asked[FaierTraining]], restart: bool, json_output: bool) -> None:
    """Train rows one after the other; what is left is told in hours once the first row has shown how fast it goes."""
    from capbench.training.faier.speed import training_seconds
    from capbench.training.faier.trainer import train_faier

    estimate = sum(training_seconds(row.settings) for row in planned if not _is_done(row.run))
    todo = sum(not _is_done(row.run) for row in planned)
    common.note(f"{todo} of {len(planned)} rows to train: some {estimate / 3600:.1f} hours on one core at 20 GFLOP/s")
    results = {}
    begin, done, left = time.monotonic(), 0.0, estimate
    for row in planned:
        expected = 0.0 if _is_done(row.run) else training_seconds(row.settings)
        common.note(f"row {row.run.name}")
        results[row.run.name] = row.train(train_faier, _line, restart)
        done, left = done + expected, left - expected
        if expected and left > 0:
            hours = (time.monotonic() - begin) / done * left / 3600
            common.note(f"{left / estimate:.0%} of the work is left: some {hours:.1f} hours, as fast as so far")
    if json_output:
        common.print_json({name: result.to_dict() for name, result in results.items()})
        return
    for name, result in results.items():
        chosen = result.chosen or {}
        sums = ", ".join(f"{n} references {r['recall_sum']:.1f}" for n, r in chosen.get("by_references", {}).items())
        print(f"{name}: step {chosen.get('step')}, recall sums: {sums}; {result.seconds:.0f} s; {result.model}")


def _is_done(run: Path) -> bool:
    return (run / "model.safetensors").is_file()


def _evaluate(
    asked: shared.Asked[FaierTraining], weights: Path | None, split: str, images: int | None, json_output: bool
) -> None:
    from capbench.models.faier.files import load_faier
    from capbench.training.device import choose_device
    from capbench.training.faier.trainer import evaluate_faier

    settings = asked.settings
    model = shared.model_to_measure(asked.run, weights, split, settings.threads, "faier")
    loaded = load_faier(model, str(choose_device(settings.device)))
    recalls = evaluate_faier(settings, loaded, split, asked.root, images=images, say=common.note)
    entry = {"split": split, **recalls, "model": str(model), "sha256": loaded.sha256}
    shared.tell_measured(entry, f"{split}:", _print_by_references, json_output)


def _print_by_references(entry: dict[str, Any]) -> None:
    for number, recalls in entry["by_references"].items():
        sizes = f"{common.count(recalls['images'], 'image')}, {common.count(recalls['captions'], 'candidate')}"
        print(f"with {common.count(int(number), 'reference')}: {sizes}")
        shared.print_recalls(recalls)


def _line(entry: dict[str, Any]) -> str:
    parts = [f"{n} references: {shared.recall_line(recalls)}" for n, recalls in entry["by_references"].items()]
    return f"dev {'; '.join(parts)}"

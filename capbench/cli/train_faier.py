"""``capbench train faier``: train the network behind FAIEr, a row of its Table 4 or all of them, or measure recall."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capbench.cli import common
from capbench.cli import train_shared as shared
from capbench.cli.train_progress import summary, train_shown
from capbench.errors import UsageError, suggest

if TYPE_CHECKING:
    from capbench.datasets.root import DataRoot
    from capbench.training.faier.config import FaierTraining
    from capbench.training.task import TrainingResult

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
    evaluate: Annotated[
        str | None,
        typer.Option("--evaluate", metavar="SPLIT", help="Train nothing: recall of the model on train, dev or test."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="With --evaluate: this model, not the run's.")
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="With --evaluate: only so many images, drawn at random.")
    ] = None,
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
    from capbench.datasets.root import find_root
    from capbench.training.config_file import find_training, load_training
    from capbench.training.faier.config import TABLE_4, FaierTraining, row_changes

    for name, value in (("model", model), ("images", images)):
        if evaluate is None and value is not None:
            raise UsageError(f"--{name} goes with --evaluate", hint="Add --evaluate test, or leave it out")
    if evaluate is not None and (restart or all_variants):
        raise UsageError("--evaluate measures one model and trains none", hint="Leave --restart and --all-variants out")
    if all_variants and variant is not None:
        raise UsageError("--all-variants trains every row, --variant one", hint="Give one of the two")
    if variant is not None and variant not in TABLE_4:
        raise UsageError(f"--variant {variant}: there is no such row", hint=suggest(variant, list(TABLE_4)))
    training_file = find_training(config)
    root = find_root(data)
    rows: list[str | None] = list(TABLE_4) if all_variants else [variant]
    planned: list[tuple[FaierTraining, Path]] = []
    for row in rows:
        own = [] if row is None else row_changes(row)
        settings = load_training(
            FaierTraining,
            training_file,
            [*own, *shared.as_changes(change, features=features, captions=captions, seed=seed)],
        )
        run = shared.run_folder(settings, None if all_variants else out, seed)
        if row is not None and (out is None or all_variants):
            run = (out or run.parent) / f"{run.name}-{row}"
        planned.append((settings, run))
    first = planned[0][0]
    common.announce_root(root, json_output=json_output, used=not Path(first.captions).expanduser().exists())
    with shared.telling_how_features_are_made(first, training_file):
        if evaluate is not None:
            _evaluate(*planned[0], model, evaluate, root, images, json_output)
            return
        if all_variants:
            _train_all(planned, root, restart, json_output)
            return
        result = _train(*planned[0], root, restart)
    if json_output:
        common.print_json(result.to_dict())
        return
    _tell(result)


def _train(settings: FaierTraining, run: Path, root: DataRoot, restart: bool) -> TrainingResult:
    from capbench.training.faier.trainer import train_faier

    return train_shown(
        run,
        lambda stop, watcher: train_faier(settings, run, root=root, restart=restart, stop=stop, watcher=watcher),
        _line,
    )


def _train_all(planned: list[tuple[FaierTraining, Path]], root: DataRoot, restart: bool, json_output: bool) -> None:
    """Train rows one after the other; what is left is told in hours once the first row has shown how fast it goes."""
    from capbench.training.faier.speed import training_seconds

    estimate = sum(training_seconds(settings) for settings, run in planned if not _is_done(run))
    todo = sum(not _is_done(run) for _, run in planned)
    common.note(f"{todo} of {len(planned)} rows to train: some {estimate / 3600:.1f} hours on one core at 20 GFLOP/s")
    results = {}
    begin, done, left = time.monotonic(), 0.0, estimate
    for settings, run in planned:
        expected = 0.0 if _is_done(run) else training_seconds(settings)
        common.note(f"row {run.name}")
        result = _train(settings, run, root, restart)
        results[run.name] = result
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


def _tell(result: TrainingResult) -> None:
    assert result.chosen is not None
    print(summary(result, "recall"))
    _print_by_references(result.chosen)
    print(f"{result.model}: sha256 {result.sha256}")


def _evaluate(
    settings: FaierTraining,
    run: Path,
    weights: Path | None,
    split: str,
    root: DataRoot,
    images: int | None,
    json_output: bool,
) -> None:
    from capbench.models.faier.files import load_faier
    from capbench.training.device import choose_device
    from capbench.training.faier.trainer import evaluate_faier

    model = shared.model_to_measure(run, weights, split, settings.threads, "faier")
    loaded = load_faier(model, str(choose_device(settings.device)))
    recalls = evaluate_faier(settings, loaded, split, root, images=images, say=common.note)
    entry = {"split": split, **recalls, "model": str(model), "sha256": loaded.sha256}
    if json_output:
        common.print_json(entry)
        return
    print(f"{split}:")
    _print_by_references(entry)
    print(f"{model}: sha256 {loaded.sha256}")


def _print_by_references(entry: dict[str, Any]) -> None:
    for number, recalls in entry["by_references"].items():
        sizes = f"{common.count(recalls['images'], 'image')}, {common.count(recalls['captions'], 'candidate')}"
        print(f"with {common.count(int(number), 'reference')}: {sizes}")
        shared.print_recalls(recalls)


def _line(entry: dict[str, Any]) -> str:
    parts = [f"{n} references: {shared.recall_line(recalls)}" for n, recalls in entry["by_references"].items()]
    return f"dev {'; '.join(parts)}"

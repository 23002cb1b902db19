"""``capbench train``: train and evaluate networks of metrics, word vectors and combinations."""

from __future__ import annotations

import contextlib
import functools
import inspect
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from capbench.cli import common
from capbench.cli.combine import combine
from capbench.cli.common import LateCommand
from capbench.core import plugins
from capbench.core.errors import UsageError

if TYPE_CHECKING:
    from capbench.api.training import PlannedTraining
    from capbench.training.loop import TrainingResult, Watcher

_LINE_S = 60.0  # time between two lines with the loss


class _Trainers(common.HelpGroup):
    """The commands of capbench, and one for each trainer that a plug-in registers."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all; nothing is imported."""
        built_in = super().list_commands(ctx)
        return [*built_in, *(name for name in plugins.names("capbench.trainers") if name not in built_in)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, or None."""
        command = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in plugins.names("capbench.trainers"):
            return _plugged(cmd_name)
        return command


app = typer.Typer(
    cls=_Trainers,
    help="Train networks and word vectors of metrics.\n\n"
    "Example: capbench train word-vectors --captions coco-val --out vectors.bin",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _train() -> None:
    """Without a callback, typer would not use a single command's name."""


@app.command("word-vectors")
def word_vectors(
    captions: Annotated[
        list[str],
        typer.Option(
            "--captions",
            "-c",
            metavar="NAME|FILE",
            help="Training captions: a corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output file (word2vec .bin).")],
    data: common.DataOption = None,
    dimension: Annotated[int, typer.Option(min=1, help="Dimension of the vectors.")] = 300,
    window: Annotated[int, typer.Option(min=1, help="Number of context words on each side.")] = 5,
    min_count: Annotated[int, typer.Option(min=1, help="Minimum count of a word.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the captions.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 1,
    include_judged: Annotated[
        bool,
        typer.Option(
            "--include-judged",
            help="Read the captions of judged images, too. Metrics with these vectors are then marked in tables.",
        ),
    ] = False,
) -> None:
    """Train word vectors for WMD (word2vec skip-gram).

    Requires gensim. The same captions, options and seed give the same file. Its SHA-256 is printed and is part of the
    signature of every score that uses it. Captions of images that a data set of judgements in the data folder names are
    left out. FILE.training.json records which captions were read.

    Example: capbench train word-vectors --captions flickr8k --out vectors.bin
    """
    from capbench.api.training import vectors_of

    options = {"dimension": dimension, "window": window, "min_count": min_count, "epochs": epochs, "seed": seed}
    made = vectors_of(captions, out, data, options, common.caller(), include_judged=include_judged)
    size = f"{made.words:,} words x {made.dimension}"
    print(f"{made.path}: {size} from {made.captions:,} captions, sha256 {made.sha256[:16]}")
    common.note(f"next: capbench score --metric wmd --option wmd.vectors={out}")


# Networks: one function for all of them; each network's command has its own options.


@dataclass(frozen=True)
class _Network:
    """The command of a network.

    Attributes:
        help: help text.
        options: options in addition to those of all networks.
        changed: options that are declared differently than in :func:`_train_network`.
    """

    help: str
    options: tuple[str, ...] = ("features", "captions")
    changed: Mapping[str, Any] = field(default_factory=dict)


_SHARED = ("config", "out", "data", "seed", "change", "restart", "json_output")
_MEASURED = ("features", "captions", "evaluate", "model", "images")

_MODEL_OR_RELEASED = Annotated[
    Path | None,
    typer.Option("--model", metavar="FILE", help="With --evaluate: model file or released checkpoint."),
]
_NETWORKS = {
    "scan": _Network(
        """Train SCAN on captions and region features.

    An interrupted training resumes with the same command and gives the same weights. The run folder has log.jsonl,
    checkpoint.pt and finally model.safetensors. Paths are relative to the current folder or the data folder.

    Example: capbench train scan scan-flickr8k-grid --seed 2

    Example: capbench train scan scan-flickr8k-grid --seed 2 --evaluate test
    """,
        (*_MEASURED, "vocabulary", "folds"),
        {"model": _MODEL_OR_RELEASED},
    ),
    "faier": _Network(
        """Train FAIEr on scene graphs and region features.

    New captions are parsed first with SPICE's parser ('capbench doctor --install spice'). An interrupted training
    resumes with the same command and gives the same weights. Paths are relative to the current folder or the data
    folder.

    Example: capbench train faier faier-flickr8k --seed 2

    Example: capbench train faier faier-flickr8k --variant faier-rel-r-ref

    Example: capbench train faier faier-flickr8k --seed 2 --evaluate test
    """,
        (*_MEASURED, "variant", "all_variants"),
    ),
    "vilbert": _Network(
        """Train ViLBERT on captions and region features.

    An interrupted training resumes with the same command and gives the same weights. The run folder has log.jsonl,
    checkpoint.pt and finally model.safetensors, which includes the word pieces. Paths are relative to the current
    folder or the data folder.

    Example: capbench train vilbert vilbert-flickr8k --seed 2
    """,
    ),
    "nneval": _Network(
        """Train NNEval on human and machine captions.

    Its input scores are computed first and cached; SPICE parses 20 to 50 new captions per second. An interrupted
    training resumes with the same command. The run folder has log.jsonl, checkpoint.pt and finally model.safetensors.

    Example: capbench train nneval nneval-coco --vectors vectors.bin --seed 2

    Example: capbench train nneval nneval-coco --vectors vectors.bin --set draw.images=500 --out results/train/small
    """,
        ("vectors",),
    ),
    "leic": _Network(
        """Train LEIC on human, corrupted and machine captions.

    An interrupted training resumes with the same command and gives the same weights. The run folder has log.jsonl,
    checkpoint.pt and finally model.safetensors. Paths are relative to the current folder or the data folder.

    Example: capbench train leic leic-flickr8k --seed 2

    Example: capbench train leic leic-flickr8k-systems --set folds.out=3 --out results/train/leic-part3
    """,
    ),
}


def _train_network(
    network: str,
    *,
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG]", help="Training file (YAML), or the name of a shipped one. Without it: list these."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Run folder. Default: results/train/NAME.", show_default=False),
    ] = None,
    data: common.DataOption = None,
    features: Annotated[
        str | None, typer.Option("--features", metavar="FILE", help="Region features, instead of the file's.")
    ] = None,
    captions: Annotated[
        str | None, typer.Option("--captions", metavar="PATH", help="Captions with splits, instead of the file's.")
    ] = None,
    vectors: Annotated[
        str | None, typer.Option("--vectors", metavar="FILE", help="Word vectors for WMD, instead of the file's.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Seed, instead of the file's; the folder is NAME-seedN.")
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="ROW",
            help="Row of the paper's Table 4, such as fier or faier-rel-4-ref; the folder is NAME-ROW.",
        ),
    ] = None,
    all_variants: Annotated[
        bool, typer.Option("--all-variants", help="Train all nine rows, each in a folder NAME-ROW.")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting that overrides the file's; repeatable."),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Discard the content of the run folder.")] = False,
    evaluate: Annotated[
        str | None,
        typer.Option("--evaluate", metavar="SPLIT", help="Do not train; measure recall on train, dev or test."),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="FILE", help="With --evaluate: model file. Default: the run's.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", metavar="FILE", help="With --model: a released checkpoint's JSON.")
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="With --evaluate: number of sampled images.")
    ] = None,
    folds: Annotated[
        int, typer.Option("--folds", min=1, help="With --evaluate: mean over this number of equal parts.")
    ] = 1,
    json_output: common.JsonOption = False,
) -> None:
    """Train a network, or evaluate it."""
    from capbench.api.training import plan_training
    from capbench.metrics.registry import trainable

    if config is None:
        texts = (out, data, features, captions, vectors, seed, variant, change, evaluate, model, vocabulary, images)
        if any(value is not None for value in texts) or all_variants or restart or folds != 1:
            hint = f"List the training files: capbench train {network}"
            raise UsageError("no training file is named", code="missing-option", value="config", hint=hint)
        _list_trainings(network, json_output)
        return
    measured = {"model": model, "vocabulary": vocabulary, "images": images, "folds": None if folds == 1 else folds}
    _check_evaluate(evaluate, restart, all_variants, measured)
    if all_variants and variant is not None:
        raise UsageError(
            "--all-variants excludes --variant", code="conflict", value=variant, hint="Pass one of the two"
        )
    rows = list(trainable(network).variants) if all_variants else [variant]
    overrides = {"features": features, "captions": captions, "vectors": vectors, "seed": seed}
    plans = [
        plan_training(
            network,
            config,
            out=None if all_variants else out,
            data=data,
            variant=row,
            changes=change or [],
            caller=common.caller(json_output=json_output),
            **overrides,  # type: ignore[arg-type]  # each has the type of its parameter
        )
        for row in rows
    ]
    if all_variants and out is not None:
        plans = [replace(plan, run=out / plan.run.name) for plan in plans]
    plan = plans[0]
    common.announce_root(plan.root, json_output=json_output, used=plan.reads_root)
    if evaluate is not None:
        reached = plan.measure(
            evaluate,
            common.progress,
            common.note,
            model=model,
            vocabulary=vocabulary,
            images=images,
            folds=folds,
        )
        _print_evaluation(plan, reached.to_dict(), json_output)
    elif all_variants:
        _train_all(plans, restart, json_output)
    else:
        _print_result(plan, _train_shown(plan, restart), json_output)


def _list_trainings(network: str, json_output: bool) -> None:
    """Print name and description of the shipped training files of a network."""
    from capbench.training.settings import shipped_trainings

    known = shipped_trainings(network)
    if json_output:
        common.print_json([{"name": name, "description": text} for name, text in known.items()])
        return
    width = max(map(len, known), default=0)
    for name, text in known.items():
        print(f"{name:{width}}  {text}")
    if not known:
        print(f"capbench has no training file of {network}")


class _Command:
    """The command of a network, with the options of this network; typer reads them on first access."""

    def __init__(self, name: str, network: _Network) -> None:
        self._name, self._network = name, network
        self.__name__, self.__doc__ = name, network.help

    def __call__(self, **values: Any) -> None:
        _train_network(self._name, **values)

    @functools.cached_property
    def __signature__(self) -> inspect.Signature:
        hints = {**get_type_hints(_train_network, include_extras=True), **self._network.changed}
        names = {*_SHARED, *self._network.options}
        parameters = [p for p in inspect.signature(_train_network).parameters.values() if p.name in names]
        return inspect.Signature([parameter.replace(annotation=hints[parameter.name]) for parameter in parameters])

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {parameter.name: parameter.annotation for parameter in self.__signature__.parameters.values()}


for _name, _network in _NETWORKS.items():
    app.command(_name)(_Command(_name, _network))


def _plugged(name: str) -> LateCommand:
    """The command of a plug-in's trainer, which is imported on first access to the command's options."""

    def declared(_: LateCommand) -> Callable[..., None]:
        from capbench.training.trainable import find_trainer

        return _Command(name, _Network(type(find_trainer(name)).__doc__ or "", _MEASURED))

    # A list of commands shows the short help; the full one is the trainer's.
    full_help = property(lambda self: self._built.help, lambda self, _: None)
    made = type("LateCommand", (LateCommand,), {"declared": declared, "help": full_help})
    package = next((known.package for known in plugins.registered("capbench.trainers") if known.name == name), "")
    short = f"Train a network of the package {package}."
    command: LateCommand = made(name, short_help=short, rich_markup_mode=None)
    return command


def _check_evaluate(evaluate: str | None, restart: bool, all_variants: bool, measured: Mapping[str, object]) -> None:
    """Raise UsageError if an option (not None) requires ``--evaluate``, or excludes it."""
    for name, value in measured.items():
        if evaluate is None and value is not None:
            hint = f"Add --evaluate test, or omit --{name}"
            raise UsageError(f"--{name} requires --evaluate", code="missing-option", value=value, hint=hint)
    if evaluate is not None and restart:
        raise UsageError("--restart would delete the model to evaluate", code="conflict", hint="Omit --restart")
    if evaluate is not None and all_variants:
        raise UsageError("--evaluate requires one model", code="conflict", hint="Omit --all-variants")


def _train_shown(plan: PlannedTraining, restart: bool) -> TrainingResult:
    """Run a training with progress; after Ctrl-C, print how to resume and exit with code 130."""
    from capbench.core.machine import keep_freed_memory
    from capbench.training.loop import stop_on_signal

    with contextlib.ExitStack() as stack:
        watcher = _watcher(plan, stack)
        stop = stack.enter_context(stop_on_signal(common.note))
        keep_freed_memory()
        result = plan.train(common.progress, restart=restart, stop=stop, watcher=watcher)
    if result.model is None:
        common.note(
            f"interrupted at step {result.step:,}; {plan.run} has a checkpoint: run the same command again to resume"
        )
        raise typer.Exit(130)
    return result


def _watcher(plan: PlannedTraining, stack: contextlib.ExitStack) -> Watcher:
    """A watcher that prints notes on stderr, and a progress bar on a terminal."""
    from capbench.training.loop import Watcher

    class Shown(Watcher):
        advance: Callable[[int], None]
        last_line = time.monotonic()

        def say(self, text: str) -> None:
            common.note(text)

        def start(self, steps: int, done: int) -> None:
            before = f", {done:,} already done" if done else ""
            common.note(f"{common.count(steps, 'step')}, output {plan.run}{before}")
            self.advance = stack.enter_context(common.progress("training", steps))
            self.advance(done)

        def step(self) -> None:
            self.advance(1)

        def log(self, entry: dict[str, Any]) -> None:
            now = time.monotonic()
            if entry["kind"] == "evaluation":
                common.note(f"step {entry['step']:,} (epoch {entry['epoch']}): {plan.network.line(entry)}")
            elif entry["kind"] == "step" and now - self.last_line >= _LINE_S:
                common.note(f"step {entry['step']:,} (epoch {entry['epoch']}): loss {entry['loss']:.4f}")
                self.last_line = now

    return Shown()


def _train_all(plans: list[PlannedTraining], restart: bool, json_output: bool) -> None:
    """Train rows one after the other."""
    common.note(f"{sum(not plan.done for plan in plans)} of {len(plans)} rows to train")
    results = {}
    for plan in plans:
        common.note(f"row {plan.run.name}")
        results[plan.run.name] = _train_shown(plan, restart)
    if json_output:
        common.print_json({name: result.to_dict() for name, result in results.items()})
        return
    for name, result in results.items():
        chosen = result.chosen or {}
        sums = ", ".join(f"{n} references {r['recall_sum']:.1f}" for n, r in chosen.get("by_references", {}).items())
        print(f"{name}: step {chosen.get('step')}, recall sums: {sums}; {result.seconds:.0f} s; {result.model}")


def _print_result(plan: PlannedTraining, result: TrainingResult, json_output: bool) -> None:
    """Print a summary of a training, the results on dev, the model file, and a command that uses it."""
    if json_output:
        common.print_json(result.to_dict())
        return
    network, chosen = plan.network, result.chosen
    assert chosen is not None
    assert result.model is not None
    ended = {"epochs": "", "max_steps": " (max_steps)", "patience": f" (no better {network.score})"}[result.ended]
    took = f"{result.seconds / 60:.1f} min" if result.seconds >= 60 else f"{result.seconds:.0f} s"
    done = f"{common.count(result.step, 'step')}, {common.count(result.epoch, 'epoch')}{ended}"
    table = network.table(chosen)
    head = f"{done}, {took}; dev at step {chosen['step']:,}:"
    print("\n".join([head, *table] if table else [f"{head} {network.line(chosen)}"]))
    print(f"{result.model}: sha256 {result.sha256}")
    if network.use is not None:
        common.note(f"next: capbench score {network.use(plan.settings, result.model)}")


def _print_evaluation(plan: PlannedTraining, entry: dict[str, Any], json_output: bool) -> None:
    if json_output:
        common.print_json(entry)
        return
    head = f"{entry['split']}:"
    if "images" in entry:
        head += f" {common.count(entry['images'], 'image')}, {common.count(entry['captions'], 'caption')}"
    print(head + (f", {entry['folds']} folds" if entry.get("folds", 1) > 1 else ""))
    print("\n".join(plan.network.table(entry)))
    print(f"{entry['model']}: sha256 {entry['sha256']}")


# REO's covariance.


@app.command("reo-covariance")
def reo_covariance(
    model: Annotated[Path, typer.Option("--model", metavar="FILE", help="Grounding model (SCAN).")],
    features: Annotated[Path, typer.Option("--features", metavar="STORE", help="Region features of the images.")],
    captions: Annotated[
        str,
        typer.Option("--captions", "-c", metavar="NAME|FILE", help="Captions of the images: a corpus or a file."),
    ],
    images: Annotated[
        Path | None,
        typer.Option(
            "--images", metavar="FILE", help="File with the image ids to use, one per line.", show_default="all"
        ),
    ] = None,
    data: common.DataOption = None,
    shrinkage: Annotated[
        float | None,
        typer.Option("--shrinkage", help="Shrinkage, from 0 to 1.", show_default="estimated, Chen et al. 2010"),
    ] = None,
    lambda_softmax: Annotated[
        float | None, typer.Option("--lambda-softmax", help="λ of the attention.", show_default="the model's")
    ] = None,
    norm: Annotated[
        str | None, typer.Option("--norm", help="Norm of the attention.", show_default="the model's")
    ] = None,
    clip: Annotated[str, typer.Option("--clip", help="Clipping: leaky or relu.")] = "leaky",
    count_ends: Annotated[bool, typer.Option(help="Count <start> and <end> as words.")] = True,
    vocabulary: Annotated[
        Path | None, typer.Option("--vocabulary", metavar="FILE", help="Vocabulary JSON of a released checkpoint.")
    ] = None,
    any_features: Annotated[
        bool, typer.Option("--any-features", help="Accept features of another kind than in training.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Output file.", show_default="FILE of --model + .reo.npz"),
    ] = None,
) -> None:
    """Fit the covariance matrix for REO's distance.

    It is the covariance of context vectors, for the Mahalanobis distance. By default it is written next to the model,
    where 'score --metric reo' finds it; its corpus, shrinkage and SHA-256 are part of every score's signature. Do not
    fit it on the captions that will be scored.

    Example: capbench train reo-covariance --model scan.safetensors --features features/flickr8k.h5 --captions flickr8k
    """
    from capbench.api.training import covariance_of

    made = covariance_of(
        str(model),
        features,
        captions,
        out,
        images,
        data,
        common.caller(),
        attention={"lambda_softmax": lambda_softmax, "norm": norm, "clip": clip, "count_ends": count_ends},
        shrinkage=shrinkage,
        vocabulary=None if vocabulary is None else str(vocabulary),
        any_features=any_features,
    )
    data_size = " of ".join(common.count(made.counts[f"{noun}s"], noun) for noun in ("context", "caption", "image"))
    print(
        f"{made.path}: {data_size} of {made.corpus}, {made.size} x {made.size}, shrinkage {made.shrinkage:.4g}, "
        f"sha256 {made.sha256[:16]}"
    )
    if made.without_features:
        common.note(f"omitted {common.count(made.without_features, 'image')} of {made.corpus} without features")
    arguments = ["--features", str(features), "--model", f"reo={model}"]
    arguments += [] if out is None else ["--option", f"reo.covariance_file={out}"]
    common.note(f"next: capbench score --metric reo {shlex.join(arguments)}")


# Combinations.

app.command("combination")(combine)

"""``capbench train``: train and evaluate networks of metrics, word vectors and combinations."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from capbench.api.arguments import CovarianceSettings, MeasureSettings, RunSettings, WordVectorSettings
from capbench.cli import common
from capbench.cli.combine import combine
from capbench.cli.commands import HelpGroup, build, group
from capbench.cli.options import argument
from capbench.core import plugins
from capbench.core.arguments import Help
from capbench.core.errors import UsageError

_HELP = """{}

    An interrupted training resumes with the same command and gives the same weights. The run folder has
    log.jsonl, checkpoint.pt and finally model.safetensors. Paths are relative to the current or the data folder.

    Example: capbench train {} {}
    """
_NETWORKS = {  # first sentences of the help, and arguments of its example
    "scan": ("Train SCAN on captions and region features.", "scan-flickr8k-grid --seed 2 --evaluate test"),
    "faier": (
        "Train FAIEr on scene graphs and region features.\n\n    New captions are parsed first with SPICE's parser "
        "('capbench doctor --install spice').",
        "faier-flickr8k --seed 2 --evaluate test",
    ),
    "vilbert": ("Train ViLBERT on captions and region features.", "vilbert-flickr8k --seed 2"),
    "nneval": (
        "Train NNEval on human and machine captions.\n\n    Its input scores are computed first and cached; SPICE "
        "parses 20 to 50 new captions per second.",
        "nneval-coco --vectors vectors.bin --set draw.images=500 --out results/train/small",
    ),
    "leic": (
        "Train LEIC on human, corrupted and machine captions.",
        "leic-flickr8k-systems --set folds.out=3 --out results/train/leic-part3",
    ),
}


_EVALUATION = {"evaluate", "model", "vocabulary", "images", "folds"}
_IDLE = {
    "scan": {"vectors"},
    "faier": {"vectors", "vocabulary"},
    "vilbert": {"vectors", *_EVALUATION},
    "nneval": {"features", *_EVALUATION},
    "leic": {"vectors", *_EVALUATION},
}
"""Options that do nothing for a network; its command does not have them. Its task would know, but loads PyTorch."""


class _Trainers(HelpGroup):
    """The commands of capbench, and one for each trainer that a plug-in registers."""

    def list_commands(self, ctx: Any) -> list[str]:
        built_in = super().list_commands(ctx)
        return [*built_in, *(name for name in plugins.names("capbench.trainers") if name not in built_in)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        known = {plugin.name: plugin.package for plugin in plugins.registered("capbench.trainers").values()}
        command: Any = super().get_command(ctx, cmd_name)
        if command is None and cmd_name in known:
            run = _command(cmd_name)
            run.__doc__ = f"Train a network of the package {known[cmd_name]}."
            command = build(run, cmd_name)
        for option in _IDLE.get(cmd_name, ()):
            command.params = [parameter for parameter in command.params if parameter.name != option]
        return command


app = group(
    "Train networks and word vectors of metrics.",
    "capbench train word-vectors --captions coco-val --out vectors.bin",
    _Trainers,
)


def _command(network: str) -> Callable[..., None]:
    def run(
        *,
        config: Annotated[
            str | None,
            argument("[CONFIG]", "Training file (YAML), or the name of a shipped one. Without it: list these."),
        ] = None,
        settings: RunSettings,
        change: Annotated[list[str] | None, Help("Overrides a setting; repeatable.", ("--set",), "KEY=VALUE")] = None,
        restart: Annotated[bool, Help("Discard the content of the run folder.")] = False,
        evaluate: Annotated[str | None, Help("Only measure on train, dev or test.", metavar="SPLIT")] = None,
        measured: MeasureSettings,
        json_output: common.JsonOption = False,
    ) -> None:
        from capbench.api.training import plan_training

        if config is None:
            if {**settings, **measured}.keys() - {"data"} or change or restart or evaluate:
                hint = f"'capbench train {network}' lists the shipped ones"
                raise UsageError("no training file is named", code="missing-option", value="config", hint=hint)
            _list_trainings(network, json_output)
            return
        if evaluate is None:
            common.refuse_options(measured, "requires --evaluate", code="missing-option", hint="Add --evaluate test")
        elif restart:
            raise UsageError("--restart would delete the model to evaluate", code="conflict", hint="Omit --restart")
        plan = plan_training(network, config, settings, changes=change or ())
        if not Path(getattr(plan.config, "captions", "")).expanduser().exists():
            common.announce_root(plan.root, json_output=json_output)
        with contextlib.ExitStack() as stack:
            watcher = _watcher(plan, stack)
            if evaluate is None:
                _print_result(plan, plan.train(watcher, restart=restart), json_output)
            else:
                _print_evaluation(plan, plan.measure(evaluate, watcher, measured), json_output)

    return run


for _name, (_does, _example) in _NETWORKS.items():
    app.command(_name, help=_HELP.format(_does, _name, _example))(_command(_name))


def _list_trainings(network: str, json_output: bool) -> None:
    from capbench.core.yaml import shipped_files

    known = {}
    for name, path in shipped_files("train").items():
        head = itertools.takewhile(lambda line: line.startswith("#"), path.read_text("utf-8").splitlines())
        text = " ".join(" ".join(line.lstrip("# ") for line in head).split())
        if name.startswith(f"{network}-") or f"capbench train {network} " in text:
            known[name] = re.split(r"[.:;](?:\s|$)", text, maxsplit=1)[0]
    entries = [{"name": name, "description": text} for name, text in known.items()]
    common.answer(json_output, entries, [f"{name:{max(map(len, known))}}  {text}" for name, text in known.items()])


def _watcher(plan: Any, stack: contextlib.ExitStack) -> Any:
    """Prints notes and shows progress on stderr; from the first step on, Ctrl-C and SIGTERM save a checkpoint."""
    from capbench.core.machine import keep_freed_memory
    from capbench.training.trainer import Watcher

    keep_freed_memory()

    class Shown(Watcher):
        begun, requested, last_line = False, False, time.monotonic()

        def say(self, text: str) -> None:
            common.note(text)

        def step(self, steps: int, done: int) -> None:
            if not self.begun:
                self.begun, resumed = True, f", {done:,} already done" if done else ""
                common.note(f"{common.count(steps, 'step')}, output {plan.run}{resumed}")
                for number in (signal.SIGINT, signal.SIGTERM):
                    stack.callback(signal.signal, number, signal.signal(number, self.request))

        def request(self, _number: int, _frame: object) -> None:
            if self.requested:
                raise KeyboardInterrupt
            self.requested = True
            common.note("stopping after this step (interrupt again to stop immediately)")

        def stopped(self) -> bool:
            return self.requested

        def log(self, entry: dict[str, Any]) -> None:
            place, now = f"step {entry['step']:,} (epoch {entry['epoch']})", time.monotonic()
            if entry["kind"] == "evaluation":
                common.note(f"{place}: dev {plan.task.line(entry)}")
            elif entry["kind"] == "step" and now - self.last_line >= 60:
                common.note(f"{place}: loss {entry['loss']:.4f}")
                self.last_line = now

    return Shown(common.progress)


def _print_result(plan: Any, result: Any, json_output: bool) -> None:
    if result.model is None:
        checkpoint = f"{plan.run} has a checkpoint: run the same command again to resume"
        common.note(f"interrupted at step {result.step:,}; {checkpoint}")
        raise typer.Exit(130)
    took = f"{result.seconds / 60:.1f} min" if result.seconds >= 60 else f"{result.seconds:.0f} s"
    done = f"{common.count(result.step, 'step')}, {common.count(result.epoch, 'epoch')} ({result.ended}), {took}"
    lines = [f"{done}; dev at step {result.chosen['step']:,}:", plan.task.line(result.chosen)]
    common.answer(json_output, result.to_dict(), [*lines, f"{result.model}: sha256 {result.sha256}"])
    if not json_output:
        common.note(f"next: capbench score {plan.task.use(plan.config, result.model)}")


def _print_evaluation(plan: Any, entry: dict[str, Any], json_output: bool) -> None:
    sizes = [common.count(entry[key], key[:-1]) for key in ("images", "captions") if key in entry]
    sizes += [f"{entry['folds']} folds"] if entry.get("folds", 1) > 1 else []
    head = f"{entry['split']}: {', '.join(sizes)}".rstrip()
    common.answer(json_output, entry, [head, plan.task.line(entry), f"{entry['model']}: sha256 {entry['sha256']}"])


@app.command("word-vectors")
def word_vectors(
    *,
    captions: Annotated[
        list[str],
        Help("A corpus (flickr8k, flickr30k, coco-val, ...) or a file; repeatable.", ("--captions", "-c"), "NAME|FILE"),
    ],
    out: Annotated[Path, common.output("Output file (word2vec .bin).")],
    settings: WordVectorSettings,
) -> None:
    """Train word vectors for WMD (word2vec skip-gram).

    Requires gensim. The same captions, options and seed give the same file. Its SHA-256 is printed and is part of the
    signature of every score that uses it. Captions of images that a data set of judgements in the data folder names are
    left out. FILE.training.json records which captions were read.

    Example: capbench train word-vectors --captions flickr8k --out vectors.bin
    """
    from capbench.api.training import train_word_vectors

    made = train_word_vectors(captions, out, **settings, progress=common.caller())
    size = f"{made.words:,} words x {made.dimension}"
    print(f"{made.path}: {size} from {made.captions:,} captions, sha256 {made.sha256[:16]}")
    common.note(f"next: capbench score --metric wmd --option wmd.vectors={out}")


@app.command("reo-covariance")
def reo_covariance(
    *,
    model: Annotated[Path, Help("Grounding model (SCAN).", metavar="FILE")],
    features: Annotated[Path, Help("Region features of the images.", metavar="STORE")],
    captions: Annotated[str, Help("Captions of the images: a corpus or a file.", ("--captions", "-c"), "NAME|FILE")],
    settings: CovarianceSettings,
    out: Annotated[Path | None, common.output("Output file. Default: FILE of --model + .reo.npz.")] = None,
) -> None:
    """Fit the covariance matrix for REO's distance.

    It is the covariance of context vectors, for the Mahalanobis distance. By default it is written next to the model,
    where 'score --metric reo' finds it; its corpus, shrinkage and SHA-256 are part of every score's signature. Do not
    fit it on the captions that will be scored.

    Example: capbench train reo-covariance --model scan.safetensors --features features/flickr8k.h5 --captions flickr8k
    """
    from capbench.api.training import fit_reo_covariance

    made = fit_reo_covariance(model, features, captions, out, **settings, progress=common.caller())
    counts = " of ".join(common.count(made.facts[f"{noun}s"], noun) for noun in ("context", "caption", "image"))
    size, fit = len(made.matrix), f"shrinkage {made.shrinkage:.4g}, sha256 {made.sha256[:16]}"
    print(f"{made.path}: {counts} of {made.facts['corpus']}, {size} x {size}, {fit}")
    arguments = ["--features", str(features), "--model", f"reo={model}"]
    arguments += [] if out is None else ["--option", f"reo.covariance_file={out}"]
    common.note(f"next: capbench score --metric reo {shlex.join(arguments)}")


app.command("combination")(combine)

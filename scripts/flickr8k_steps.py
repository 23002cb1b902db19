"""What the reproductions on Flickr8k have in common: options, features, ratings, trainings, scores, tests, the end."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from capbench.core.errors import MissingFileError  # noqa: E402
from capbench.core.files import atomic_write, read_json  # noqa: E402
from capbench.core.machine import keep_freed_memory  # noqa: E402
from capbench.core.records import FloatArray, IntArray, Item, ScoreColumn  # noqa: E402
from capbench.datasets.opening import open_dataset  # noqa: E402
from capbench.datasets.root import DataRoot, find_root  # noqa: E402
from capbench.features.importers import import_features  # noqa: E402
from capbench.features.pooling import parse_pooling, pool_store  # noqa: E402
from capbench.metrics.base import Resources  # noqa: E402
from capbench.metrics.requests import resolve_metrics  # noqa: E402
from capbench.metrics.scoring import score  # noqa: E402
from capbench.stats.agreement import Correlations  # noqa: E402
from capbench.stats.correlation import correlation  # noqa: E402
from capbench.stats.intervals import bootstrap_intervals, draw_bootstrap  # noqa: E402
from capbench.stats.significance import compare, permutations_to_use  # noqa: E402
from capbench.training.loop import TrainingResult  # noqa: E402
from capbench.training.settings import Training, find_training, load_training  # noqa: E402
from capbench.weights.ensembles import Member, write_ensemble  # noqa: E402
from scripts.checks import at_least, require_file, require_writable  # noqa: E402

FEATURES = "flickr8k/mobilenetv2_grid49_pca256_int8.npz"
INPUTS = (FEATURES, *(f"flickr8k/Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test")))
DETECTOR = "mobilenetv2-grid-pca256"
WINDOWS = "pyr30"
TEXT = ("cider", "meteor", "spice", "rouge-l", "bleu-1", "bleu-4")
GROUP = 3
"""Networks of an ensemble."""
T = TypeVar("T")
S = TypeVar("S", bound=Training)


@dataclasses.dataclass(frozen=True, eq=False)
class Rated:
    """Items that people rated.

    Attributes:
        items: the items.
        item: (n,) item of each rating.
        value: (n,) the rating.
        protocol: what was asked.
    """

    items: tuple[Item, ...]
    item: IntArray
    value: FloatArray
    protocol: str

    def mean(self) -> FloatArray:
        """(items,) mean rating."""
        return np.asarray(np.bincount(self.item, self.value) / np.bincount(self.item), dtype=np.float64)

    def tau_c(self, scores: FloatArray, coefficient: Any = "tau-c") -> float:
        """Correlation of items' scores with single ratings."""
        return correlation(coefficient, scores[self.item], self.value).value


def say(text: str) -> None:
    """One line of progress on stderr."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def make_features(root: DataRoot, out: Path, windows: str = WINDOWS, name: str = WINDOWS) -> Path:
    """The store that is pooled by windows, under a name in a folder."""
    pooled = out / f"{name}.h5"
    if not pooled.is_file():
        cells = import_cells(root, out)
        say(f"pool 7 x 7 cells into {windows}")
        pool_store(cells, pooled, parse_pooling(windows))
    return pooled


def import_cells(root: DataRoot, out: Path) -> Path:
    """The store of the grid's cells in a folder, imported if it is not there."""
    cells = out / "cells.h5"
    if not cells.is_file():
        say("import features")
        import_features([root.file(FEATURES, what="Flickr8k's grid features")], cells, detector=DETECTOR)
    return cells


def options(doc: str, config: str, out: Path, *, seeds: int = 3, threads: int = 1) -> argparse.ArgumentParser:
    """The options that all have.

    Args:
        doc: what the script says of itself.
        config: the training file by default.
        out: where everything is kept by default.
        seeds: how many by default, from 1 on.
        threads: of PyTorch by default.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="default: $CAPBENCH_DATA")
    parser.add_argument("--out", type=Path, default=out, help="where everything is kept")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", default=list(range(1, seeds + 1)))
    parser.add_argument("--config", default=config, help="the training file, or the name of a shipped one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of the training"
    )
    parser.add_argument("--steps", type=at_least(1), help="fewer steps, to try this script")
    parser.add_argument("--threads", type=at_least(1), default=threads, help="of PyTorch")
    parser.add_argument(
        "--resamples", type=at_least(100), default=1000, help="of the bootstrap; a third of the permutation test's"
    )
    return parser


def read_options(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for; leaves where a seed stands twice."""
    asked = parser.parse_args(arguments)
    if len(set(asked.seeds)) < len(asked.seeds):
        parser.error("a seed stands twice in --seeds")
    return asked


def begin(
    asked: argparse.Namespace, kind: type[S], features: Path, changes: Sequence[str] = ()
) -> tuple[DataRoot, list[S]]:
    """Set PyTorch up, and refuse all that can be refused before the training, which takes most of an hour.

    Args:
        asked: the options.
        kind: of the training.
        features: the store that it will read.
        changes: of its file, before those of the options.

    Returns:
        The data folder, and the settings of each seed's training.

    Raises:
        CapbenchError: something is missing, cannot be written to, or does not fit.
    """
    keep_freed_memory()
    torch.set_num_threads(asked.threads)
    require_writable(asked.out)
    root = find_root(asked.data)
    more = [*([f"max_steps={asked.steps}"] if asked.steps else []), *asked.set]
    settings = [
        load_training(
            kind,
            find_training(asked.config),
            [*changes, f"features={str(features)!r}", f"seed={seed}", f"threads={asked.threads}", *more],
        )
        for seed in asked.seeds
    ]
    for name in INPUTS:
        root.file(name, what="Flickr8k")
    return root, settings


def recall_sum(entry: dict[str, Any]) -> str:
    """An evaluation by recall, in words."""
    return f"dev recall sum {entry['recall_sum']:.1f}"


def train_kept(
    root: DataRoot,
    run: Path,
    settings: S,
    carry_out: Callable[..., TrainingResult],
    describe: Callable[[dict[str, Any]], str],
) -> Path:
    """The model of one seed, in a folder of its own; an interrupted training goes on.

    Args:
        root: the data folder.
        run: the folder.
        settings: of the training.
        carry_out: the training: takes settings, folder, root and watcher.
        describe: an evaluation in words.
    """
    from capbench.training.loop import Watcher

    # Looking whether a training is finished would read all features again, and parses.
    done, model, wanted = run / "done.json", run / "model.safetensors", settings.deciding()
    if done.is_file() and model.is_file() and read_json(done) == json.loads(json.dumps(wanted)):
        return model

    class Lines(Watcher):
        def say(self, text: str) -> None:
            say(text)

        def log(self, entry: dict[str, Any]) -> None:
            if entry["kind"] == "evaluation":
                say(f"{run.name}, step {entry['step']}: {describe(entry)}")
            elif entry["kind"] == "step" and entry["step"] % 60 == 0:
                say(f"{run.name}, step {entry['step']}: loss {entry['loss']:.3f}")

    result = carry_out(settings, run, root=root, watcher=Lines())
    if result.model is None:
        raise SystemExit(130)
    with atomic_write(done, "w") as file:
        json.dump(wanted, file)
    return result.model


def groups(models: Sequence[T]) -> list[Sequence[T]]:
    """Seeds in groups of three, in their order; what is left over goes into none."""
    return [models[start : start + GROUP] for start in range(0, len(models) - GROUP + 1, GROUP)]


def join_networks(out: Path, name: str, models: Sequence[Path], load: Callable[[Path], Member]) -> list[Path]:
    """Each three networks as an ensemble's file."""
    ensembles = []
    for number, group in enumerate(groups(models), 1):
        ensembles.append(out / f"{name}-ensemble{number}.json")
        write_ensemble(ensembles[-1], [load(path) for path in group])
    return ensembles


def rated(root: DataRoot) -> dict[str, Rated]:
    """Flickr8k Expert's items, and Composite's of Flickr8k images if its file is there."""
    rated_by_name = {}
    for key, name, aspect in (("expert", "flickr8k-expert", "expert"), ("composite-8k", "composite@8k", "correctness")):
        dataset = open_dataset(name, root)
        protocol = dataset.protocol(None)
        try:
            judgements = dataset.load(protocol.items)[0]
        except MissingFileError as error:
            if key == "expert":
                raise
            say(f"without Composite: {error}")
            continue
        ratings = judgements.ratings[aspect]
        rated_by_name[key] = Rated(judgements.items, ratings.item, ratings.value, str(protocol))
    return rated_by_name


def scored(data: Rated, root: DataRoot, metric: str, features: Path, model: Path) -> dict[str, FloatArray]:
    """All columns of a metric that reads features, through the score cache."""
    resources = Resources(features=str(features), model=str(model), data=str(root.path))
    made = score(data.items, resolve_metrics([metric]), resources, dataset="flickr8k")
    return {key.column: values for key, values in made.values.items()}


def text_scores(data: Rated, root: DataRoot) -> dict[str, FloatArray]:
    """Metrics that look at no image; SPICE only where it is set up."""
    scores = {}
    for name in TEXT:
        request = resolve_metrics([name])
        if request[0].lacking(Resources()):
            say(f"without {name}: 'capbench setup' was not run for it")
            continue
        made = score(data.items, request, Resources(data=str(root.path)), dataset="flickr8k")
        scores[name] = made.values[ScoreColumn(request[0].metric.name, request[0].columns[0])]
    return scores


@dataclasses.dataclass(frozen=True)
class Networks:
    """Trained networks that a metric is to be scored under.

    Attributes:
        metric: the metric.
        columns: of it, those that are wanted.
        place: the folder with their features.
        folders: of the networks.
    """

    metric: str
    columns: tuple[str, ...]
    place: Path
    folders: tuple[Path, ...]

    @property
    def files(self) -> list[Path]:
        """All that must be there."""
        return [self.place / f"{WINDOWS}.h5", *(folder / "model.safetensors" for folder in self.folders)]


def network_scores(data: Rated, root: DataRoot, name: str, wanted: Sequence[Networks]) -> dict[str, list[FloatArray]]:
    """Scores of metrics under networks by column, one array a network; and the mean of the first three, which is what
    an ensemble gives. Raises UsageError where a file is missing, before anything is scored."""
    for networks in wanted:
        for path in networks.files:
            require_file(path)
    by_column: dict[str, list[FloatArray]] = {}
    for networks in wanted:
        store, *models = networks.files
        made = []
        for model in models:
            say(f"{networks.metric} under {model.parent.name} of {networks.place} on {name}")
            made.append(scored(data, root, networks.metric, store, model))
        for column in networks.columns:
            each = by_column[column] = [scores[column] for scores in made]
            if len(each) >= GROUP:
                by_column[f"{column}, mean of {GROUP}"] = [np.mean(each[:GROUP], axis=0)]
    return by_column


def row_of(data: Rated, networks: Sequence[FloatArray], width: int) -> FloatArray:
    """(width, ratings) scores of a row that is tested: one a network, of which the statistic is the mean; a row of
    fewer networks is its first one, again and again."""
    few = networks[:width] if len(networks) >= width else [networks[0]] * width
    return np.stack([scores[data.item] for scores in few])


def tested(data: Rated, rows: Mapping[str, FloatArray], resamples: int) -> dict[str, Any]:
    """``intervals`` of rows, and a ``comparison`` of each two; images are drawn.

    Args:
        data: items and ratings.
        rows: (networks, ratings) scores by row.
        resamples: of the bootstrap; a third of the permutation test's.
    """
    images = np.array([item.image for item in data.items])
    agreement = Correlations.of("tau-c", dict(rows), data.value, unit=images[data.item])
    sample = draw_bootstrap(agreement, resamples=resamples, seed=0)
    # Few resamples ask for few permutations, with which no difference could be significant.
    permutations = max(3 * resamples, permutations_to_use(None, len(rows)))
    return {
        "intervals": {name: vars(one) for name, one in bootstrap_intervals(agreement, sample).items()},
        "comparison": dataclasses.asdict(compare(agreement, sample=sample, permutations=permutations)),
    }


def finish(
    results: dict[str, Any], tables: Callable[[Mapping[str, Any]], str], numbers: Path, page: Path, began: float
) -> None:
    """Write numbers and tables, and print the tables.

    Args:
        results: the numbers.
        tables: of them.
        numbers: file of the numbers.
        page: file of the tables.
        began: when the run began (:func:`time.monotonic`).
    """
    results["minutes of this run"] = round((time.monotonic() - began) / 60, 1)
    with atomic_write(numbers, "w") as file:
        json.dump(results, file, indent=1, ensure_ascii=False)
    shown = tables(results)
    with atomic_write(page, "w") as file:
        file.write(shown)
    print(shown)
    say(f"{numbers}: everything; {results['minutes of this run']} minutes")

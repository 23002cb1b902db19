"""Steps of recipes that make features and networks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from capbench.core.errors import UsageError, suggest
from capbench.core.progress import Progress
from capbench.studies.recipe import LeftOut, Planning, Product, Run
from capbench.studies.recipe_file import Step

__all__ = ["EnsembleStep", "FilesStep", "ImportStep", "PoolStep", "TrainStep", "groups"]

T = TypeVar("T")


class FilesStep(Step):
    """Existing files, such as another recipe's networks."""

    kind: ClassVar[str] = "files"
    files: str
    seeds: list[int] = Field([])
    optional: bool = False

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        products = [Product(_below(planning.out, self.files, seed), {"seed": seed}) for seed in self.seeds]
        products = products or [Product(_below(planning.out, self.files))]
        for product in products:
            if not product.path.is_file():
                if self.optional:
                    raise LeftOut(f"there is no file {product.path}")
                raise UsageError(
                    "there is no such file", code="missing-file", path=product.path, hint=f"Create it for step '{name}'"
                )
        planning.have(name, products)


def _below(out: Path, pattern: str, seed: int | None = None) -> Path:
    # A folder next to one that does not exist yet.
    return Path(os.path.normpath(out / pattern.replace("{seed}", str(seed))))


class ImportStep(Step):
    """A feature store from a published file of the data folder."""

    kind: ClassVar[str] = "import"
    source: str = Field(alias="import")
    detector: str
    file: str = "cells.h5"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        source, store = planning.root.file(self.source), planning.out / self.file

        def work(run: Run) -> None:
            from capbench.features.importers import import_features

            with run.bars("importing", None) as progress:
                import_features([source], store, detector=self.detector, replace=True, progress=progress)

        planning.add(name, self.kind, {"detector": self.detector}, [source], [Product(store)], work)


class PoolStep(Step):
    """A feature store of windows, boxes or both, pooled from cells."""

    kind: ClassVar[str] = "pool"
    cells: str = Field(alias="pool")
    windows: str | None = None
    boxes: str | None = None
    top: int | None = None
    file: str | None = None

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.features.pooling import parse_pooling

        cells, store = planning.one(self.cells), planning.out / (self.file or f"{name}.h5")
        windows = None if self.windows is None else parse_pooling(self.windows)
        boxes = None if self.boxes is None else planning.root.file(self.boxes)
        if windows is None and boxes is None:
            raise UsageError(f"step '{name}' has neither 'windows' nor 'boxes'", code="missing-key", value=name)

        def work(run: Run) -> None:
            from capbench.features.pooling import BoxPooling, pool_store, read_boxes

            under = None if boxes is None else BoxPooling(read_boxes(boxes), top=self.top)
            with run.bars("pooling", None) as progress:
                pool_store(cells, store, windows, boxes=under, replace=True, progress=progress)

        settings = {"windows": self.windows, "boxes": self.boxes, "top": self.top}
        inputs = [cells, *([] if boxes is None else [boxes])]
        planning.add(name, self.kind, settings, inputs, [Product(store)], work)


class TrainStep(Step):
    """Networks of several seeds, or of several variants with their seeds, from a training file with changes.

    Attributes:
        network: name of the network.
        config: the training file.
        features: step with the store.
        vectors: step with word vectors that metrics are computed from.
        word_vectors: step with word vectors that initialise embeddings.
        seeds: seeds of all runs.
        variants: seeds by published variant, instead of ``seeds``.
        runs: additional changes by the run's name; each run is trained with every seed.
        settings: changes of the training file in all runs.
        threads: number of PyTorch's threads.
        folder: folder of each run.
    """

    kind: ClassVar[str] = "train"
    network: str = Field(alias="train")
    config: str
    features: str | None = None
    vectors: str | None = None
    word_vectors: str | None = None
    seeds: list[int] = Field([1])
    variants: dict[str, list[int]] = Field({})
    runs: dict[str, dict[str, Any]] = Field({})
    settings: dict[str, Any] = Field({})
    threads: int = 1
    folder: str = "{config}{-variant}-seed{seed}"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        from capbench.metrics.registry import trainable
        from capbench.training.settings import find_training, load_training

        network, file = trainable(self.network), find_training(self.config)
        given = {key: planning.one(step) for key, step in self._stores().items()}
        for run, variant, seed in self._runs(planning.seeds):
            if variant and variant not in network.variants:
                hint = suggest(variant, list(network.variants))
                raise UsageError(
                    f"there is no variant '{variant}' of '{self.network}'",
                    code="unknown-name",
                    value=variant,
                    hint=hint,
                )
            changes = [
                *network.variants.get(variant, ()),
                # JSON is YAML
                *(
                    f"{k}={json.dumps(v, ensure_ascii=False)}"
                    for k, v in {**self.settings, **self.runs.get(run, {})}.items()
                ),
                *(f"{key}={str(path)!r}" for key, path in given.items()),
                f"seed={seed}",
                f"threads={self.threads}",
                *planning.changes,
            ]
            settings = load_training(network.settings, file, changes)
            folder = self._folder(file.stem, run, variant, seed)
            run_folder = planning.out / folder
            fields = {"variant": variant, "seed": seed, "network": folder, **({"run": run} if run else {})}
            model = Product(run_folder / "model.safetensors", fields)
            planning.add(
                f"{name}/{folder}",
                self.kind,
                {"network": self.network, "config": file.stem, "variant": variant, **settings.deciding()},
                [*given.values(), *planning.data],
                [model],
                partial(_train, network, settings, run_folder),
            )

    def _stores(self) -> dict[str, str]:
        steps = {"features": self.features, "vectors": self.vectors, "word_vectors": self.word_vectors}
        return {key: step for key, step in steps.items() if step}

    def _runs(self, seeds: Sequence[int]) -> Iterator[tuple[str, str, int]]:
        for variant, own in (self.variants or {"": self.seeds}).items():
            for seed in seeds or own:
                for run in self.runs or {"": {}}:
                    yield run, variant, seed

    def _folder(self, config: str, run: str, variant: str, seed: int) -> str:
        texts = {
            "{config}": config,
            "{run}": run,
            "{variant}": variant,
            "{seed}": str(seed),
            "{-variant}": f"-{variant}" * bool(variant),
        }
        folder = self.folder
        for key, text in texts.items():
            folder = folder.replace(key, text)
        return folder


def _train(network: Any, settings: Any, folder: Path, run: Run) -> None:
    """Train one network, or resume its training. Raises KeyboardInterrupt if the user asks to stop."""
    from capbench.core.machine import keep_freed_memory
    from capbench.training.loop import Watcher, stop_on_signal

    class Lines(Watcher):
        advance: Progress

        def say(self, text: str) -> None:
            run.note(text)

        def start(self, steps: int, done: int) -> None:
            self.advance = stack.enter_context(run.bars(f"training {folder.name}", steps))
            self.advance(done)

        def step(self) -> None:
            self.advance(1)

        def log(self, entry: dict[str, Any]) -> None:
            if entry["kind"] == "evaluation":
                run.note(f"{folder.name}, step {entry['step']:,}: {network.line(entry)}")

    keep_freed_memory()
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal(run.note))
        more = {"bars": run.bars} if network.shows_work else {}
        result = network.train(settings, folder, root=run.root, stop=stop, watcher=Lines(), **more)
    if result.model is None:
        raise KeyboardInterrupt


class EnsembleStep(Step):
    """Ensembles of the networks of a step: of a number of seeds each, in order, or of all of them."""

    kind: ClassVar[str] = "ensemble"
    networks: str = Field(alias="ensemble")
    of: int | None = None
    file: str = "{config}-ensemble{number}.json"

    def plan(self, name: str, planning: Planning) -> None:
        """See :meth:`Step.plan`."""
        for fields, products in by_variant(planning.products(self.networks)):
            for number, group in enumerate(groups(products, self.of), 1):
                variant = str(fields.get("variant") or "")
                file = self.file.replace("{number}", str(number)).replace("{variant}", variant)
                file = file.replace(
                    "{config}", str(group[0].fields.get("network", name)).rpartition("-seed")[0] or name
                )
                paths = [product.path for product in group]
                made = Product(planning.out / file, {**fields, "network": Path(file).stem})
                planning.add(
                    f"{name}/{Path(file).stem}", self.kind, {}, paths, [made], partial(_join, paths, made.path)
                )


def _join(paths: Sequence[Path], file: Path, run: Run) -> None:
    from capbench.metrics.loading import load_network
    from capbench.weights.ensembles import write_ensemble

    write_ensemble(file, [load_network(path) for path in paths])


def by_variant(products: Sequence[Product]) -> Iterator[tuple[Mapping[str, Any], list[Product]]]:
    """Products grouped by their fields except seed and network, in order."""

    def key(product: Product) -> dict[str, Any]:
        return {name: value for name, value in product.fields.items() if name not in ("seed", "network", "run")}

    for fields, group in groupby(products, key):
        yield fields, list(group)


def groups(products: Sequence[T], size: int | None) -> list[Sequence[T]]:
    """Products in groups of a size, in order, without an incomplete last group. Without a size: all, if several."""
    if size is None:
        return [products] if len(products) > 1 else []
    return [products[start : start + size] for start in range(0, len(products) - size + 1, size)]

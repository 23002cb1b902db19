"""Where work is done: here, or by workers of a Ray cluster (``--on ray``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from capbench.cli import common
from capbench.cli.groups import OptionGroup
from capbench.errors import UsageError

if TYPE_CHECKING:
    from capbench.spreading import Spread

__all__ = ["Place", "SpreadPlace"]


@dataclass(frozen=True)
class Place(OptionGroup):
    """Where the work is done. A command with workers of its own declares ``workers`` and ``threads`` itself."""

    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="ray[:ADDRESS]",
            help="Let workers of a Ray cluster do the work; ray alone starts them on this machine. Needs "
            "capbench[cluster].",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        typer.Option("--gpus-per-worker", min=0.0, metavar="G", help="GPUs of each worker of --on. Default: none."),
    ] = None
    worker_memory: Annotated[
        int | None,
        typer.Option(
            "--worker-memory",
            min=1,
            metavar="MB",
            help="Memory of each worker of --on: no more are started than there is room for. Default: what the work "
            "usually takes.",
        ),
    ] = None

    @contextlib.contextmanager
    def engine(self, workers: int | None, threads: int | None) -> Iterator[Spread | None]:
        """The engine that is asked for; None where this process does the work.

        Args:
            workers: their number, as it was given.
            threads: of each worker, as it was given.

        Raises:
            UsageError: options of workers without ``--on``, or no such engine.
            ToolError: Ray does not answer.
        """
        if self.on is None:
            if self.gpus_per_worker is not None or self.worker_memory is not None:
                raise UsageError("--gpus-per-worker and --worker-memory are for --on", hint="Add --on ray")
            yield None
            return
        from capbench.cluster.engine import Cluster, Engine, parse_engine

        address = parse_engine(self.on)
        if workers == 0:
            raise UsageError("--workers 0: --on needs one worker at least", hint="Leave --workers out for all cores")
        where = "this machine" if address is None else address
        common.note(f"starting workers on {where}")
        cluster = Cluster(address, workers, threads or 1, self.gpus_per_worker or 0.0, self.worker_memory)
        with Engine(cluster, common.note) as engine:
            yield engine


@dataclass(frozen=True)
class SpreadPlace(Place):
    """Where the work is done, for commands without workers of their own."""

    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="How many workers --on has. Default: as there is room for.")
    ] = None
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Cores of each worker of --on. Default: 1.")
    ] = None

    @contextlib.contextmanager
    def spread(self) -> Iterator[Spread | None]:
        """The engine that is asked for; see :meth:`Place.engine`."""
        if self.on is None and (self.workers is not None or self.threads is not None):
            raise UsageError("--workers and --threads are for --on", hint="Add --on ray")
        with self.engine(self.workers, self.threads) as engine:
            yield engine

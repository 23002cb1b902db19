"""The engine behind ``--on ray``: workers are Ray's actors, and Ray starts, watches and restarts them.

Ray's documentation calls what this uses "actor fault tolerance": an actor whose process dies is started again
(``max_restarts``), and the call that it was in is made again (``max_task_retries``), also after an exception
(``retry_exceptions``). Each worker has one part at a time, so that what kills it concerns no other part.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from capbench.cluster.worker import Done, Worker, surroundings
from capbench.errors import CapbenchWarning, ToolError, UsageError
from capbench.installing import install_command
from capbench.machine import usable_cores
from capbench.spreading import PartFailure

__all__ = ["Cluster", "Engine", "parse_engine"]

PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")

_RETRIES = 2
_FAILED_IN_A_ROW = 2
_CONNECT_S = 10.0
_STORE_MB_A_WORKER = 128
_MB = 1 << 20
_RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it reports its use to its makers unless told not to
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # workers without a GPU of their own see none, and it warns of a change
    "RAY_worker_niceness": "0",  # by default workers give way to everything else on the machine
}


@dataclass(frozen=True)
class Cluster:
    """Where workers run, and how many.

    Attributes:
        address: of a running Ray cluster (``auto``, ``HOST:PORT``, ``ray://HOST:PORT``); None: this machine alone.
        workers: how many; None: as many as there are cores, or GPUs where ``gpus_per_worker`` asks for some.
        threads: cores of a worker.
        gpus_per_worker: GPUs of a worker; a fraction lets several share one.
        memory_mb: memory of a worker; None: what the work names.
    """

    address: str | None = None
    workers: int | None = None
    threads: int = 1
    gpus_per_worker: float = 0.0
    memory_mb: int | None = None


def parse_engine(text: str) -> str | None:
    """The address in ``ray`` (None: Ray's own variable RAY_ADDRESS, else this machine) or ``ray:ADDRESS``.

    Raises:
        UsageError: it is neither.
    """
    name, colon, address = text.partition(":")
    if name != "ray" or (colon and not address):
        raise UsageError(f"--on {text}: unknown engine", hint="Examples: ray, ray:auto, ray:HOST:6379")
    return address or os.environ.get("RAY_ADDRESS") or None


class Engine:
    """A connection to Ray; a context manager.

    Args:
        cluster: where and how many.
        note: takes lines for the user.

    Raises:
        UsageError: Ray is not installed.
        ToolError: there is no cluster at the address, or Ray does not start here.
    """

    def __init__(self, cluster: Cluster, note: Callable[[str], None] = lambda _: None) -> None:
        self._cluster, self._note = cluster, note
        self._ray = _connected(cluster)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    def run(
        self, opener: Callable[[], Callable[[PartT], ResultT]], parts: Sequence[PartT], *, memory_mb: int
    ) -> Iterator[tuple[int, ResultT | PartFailure]]:
        """Do all parts; see :class:`capbench.spreading.Spread`.

        Raises:
            CapbenchError: what ``opener`` or a part raised.
            ToolError: no machine of the cluster has what a worker needs, or the cluster is gone.
        """
        memory_mb = self._cluster.memory_mb or memory_mb
        actors = self._start(opener, min(self._count(memory_mb), len(parts)), memory_mb)
        idle, waiting = list(actors), iter(enumerate(parts))
        running: dict[Any, tuple[Any, int]] = {}
        failed_in_a_row = dict.fromkeys(actors, 0)
        told: set[str] = set()
        try:
            while True:
                while idle and (following := next(waiting, None)) is not None:
                    place, part = following
                    actor = idle.pop()
                    do = actor.do.options(max_task_retries=_RETRIES, retry_exceptions=True)
                    running[do.remote(part)] = actor, place
                if not running:
                    return
                for reference in self._ray.wait(list(running))[0]:
                    actor, place = running.pop(reference)
                    result = self._result(reference, told)
                    failed_in_a_row[actor] = failed_in_a_row[actor] + 1 if isinstance(result, PartFailure) else 0
                    if failed_in_a_row[actor] < _FAILED_IN_A_ROW or len(failed_in_a_row) == 1:
                        idle.append(actor)
                    else:
                        # What fails does so at once: a worker with a full disk would take all parts there are.
                        del failed_in_a_row[actor]
                        self._note(f"one worker is given no more parts: {_FAILED_IN_A_ROW} in a row failed there")
                    yield place, result
        finally:
            for actor in actors:
                with contextlib.suppress(Exception):  # it may be gone, and so may the cluster
                    self._ray.kill(actor)

    def _result(self, reference: Any, told: set[str]) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            done: Done = self._ray.get(reference)
        except RayTaskError as error:
            cause = error.cause
            return PartFailure(f"{type(cause).__name__}: {cause}".replace("\n", " "))
        except RayError as error:
            if not self._ray.is_initialized():
                raise ToolError(
                    "the Ray cluster is gone", hint="What is done is kept; run the command again"
                ) from error
            return PartFailure("its worker died three times, perhaps of too little memory")
        for warning in done.warnings:
            if isinstance(warning, CapbenchWarning) and str(warning) not in told:
                told.add(str(warning))
                warnings.warn(warning, stacklevel=2)
        if done.error is not None:
            raise done.error
        return done.result

    def _start(self, opener: Callable[[], Callable[[Any], Any]], count: int, memory_mb: int) -> list[Any]:
        cluster = self._cluster
        actor = self._ray.remote(Worker).options(
            num_cpus=cluster.threads,
            num_gpus=cluster.gpus_per_worker,
            memory=memory_mb * _MB,
            max_restarts=-1,
            max_task_retries=_RETRIES,
        )
        # The opener is an argument, not a shared object: an actor that starts again needs it again.
        around = surroundings(cluster.threads)
        try:
            return [actor.remote(around, opener) for _ in range(count)]
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UsageError(
                f"what workers need cannot be handed to them ({' '.join(str(error).split())[:200]})",
                hint="A metric of your own keeps what does not pickle in cached properties; or leave --on out",
            ) from error

    def _count(self, memory_mb: int) -> int:
        """Workers that there is room for, at most as many as are asked for."""
        cluster = self._cluster
        needs = {"CPU": cluster.threads, "GPU": cluster.gpus_per_worker, "memory": memory_mb * _MB}
        room, short = 0, set()
        for node in self._ray.nodes():
            if not node["Alive"]:
                continue
            fits = {name: int(node["Resources"].get(name, 0) / need) for name, need in needs.items() if need}
            room += min(fits.values())
            short.add(min(fits, key=lambda name: fits[name]))
        asked = cluster.workers
        scarce = " and ".join(sorted(short))
        if not room:
            raise ToolError(
                f"no machine has room for a worker with {cluster.threads} cores, {cluster.gpus_per_worker:g} GPUs and "
                f"{memory_mb:,} MB: {scarce} is short",
                hint="Give --threads, --gpus-per-worker or --worker-memory what there is",
            )
        if asked is not None and asked > room:
            self._note(f"{room} of {asked} workers: there is no room for more ({scarce} is short)")
        return room if asked is None else min(asked, room)


def _connected(cluster: Cluster) -> Any:
    for name, value in _RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--on ray needs Ray, which is not installed", hint=f"Install it with {install_command('ray')}"
        ) from error
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address is None:
        workers = cluster.workers or max(1, usable_cores() // cluster.threads)
        settings |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": workers * cluster.threads,  # what is asked for, also where it is more than there is
            "object_store_memory": (workers + 1) * _STORE_MB_A_WORKER * _MB,
        }
    else:
        settings["address"] = cluster.address
        _check_reachable(cluster.address)
    try:
        ray.init(**settings)
    except Exception as error:  # Ray raises many kinds, also its own client's
        where = "on this machine" if cluster.address is None else f"at {cluster.address}"
        raise ToolError(
            f"Ray does not answer {where} ({' '.join(str(error).split())[:200]})",
            hint="Check the address, 'ray status' there, and RAY_AUTH_MODE=token if the cluster asks for tokens"
            if cluster.address
            else "Try 'ray start --head'",
        ) from error
    _silence(ray)
    return ray


def _check_reachable(address: str) -> None:
    """Raise ToolError if nobody listens at ``HOST:PORT``: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # a name of Ray's own, such as auto
    try:
        socket.create_connection((host, int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise ToolError(
            f"nobody answers at {address} ({error})", hint="Check the address, and 'ray status' on that machine"
        ) from error


def _silence(ray: Any) -> None:
    """Keep Ray from writing its own reports of dead workers to stdout, where results go."""
    if hasattr(ray._private.worker, "_worker_logs_enabled"):
        ray._private.worker._worker_logs_enabled = False

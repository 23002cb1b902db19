"""Parallel work in other processes by Ray (``--on ray``).

The split into parts does not depend on the number of workers, and one process gathers all results: the number changes
no byte of the output. A worker is a Ray actor, which is restarted if its process dies.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from capbench.core.errors import CapbenchError, CapbenchWarning, ToolError, UsageError, require
from capbench.core.machine import limit_cores, usable_cores


class Done(NamedTuple):
    """The outcome of a part: its result, or the error if a second attempt cannot succeed; and its warnings."""

    result: Any
    error: CapbenchError | None
    warnings: tuple[Warning, ...]


class Worker:
    """A Ray actor with the settings of the main process."""

    def __init__(
        self,
        folder: str,  # the working directory, for relative paths; it must be on a shared disk
        paths: Sequence[str],
        variables: Mapping[str, str],
        threads: int,
        # returns the function that processes a part; called at the first part, so that its errors are reported
        opener: Callable[[], Callable[[Any], Any]],
    ) -> None:
        os.chdir(folder)
        sys.path[:] = dict.fromkeys([*sys.path, *paths])
        for name in _variables():
            del os.environ[name]
        os.environ.update(variables)
        limit_cores(threads)
        self._opener = opener
        self._work: Callable[[Any], Any] | None = None

    def do(self, part: Any) -> Done:
        """Process a part. Ray repeats the part after any exception other than a CapbenchError."""
        with warnings.catch_warnings(record=True) as caught:
            try:
                self._work = self._work or self._opener()
                result, error = self._work(part), None
            except CapbenchError as raised:
                result, error = None, raised
        return Done(result, error, tuple(w.message for w in caught if isinstance(w.message, Warning)))


def _variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("CAPBENCH_")}


PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


class PartFailure(NamedTuple):
    """A part that failed three times, with the reason in one line."""

    reason: str


_RETRIES = 2
_CONNECT_S = 10.0
_STORE_MB_A_WORKER = 128
_MB = 1 << 20
_RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",  # Ray reports usage statistics by default
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # hides GPUs from workers without one, and avoids a warning
    "RAY_worker_niceness": "0",  # by default workers run with low priority
}


@dataclass(frozen=True)
class Cluster:
    """Address and resources of the workers."""

    # of a running Ray cluster (``auto``, ``HOST:PORT``, ``ray://HOST:PORT``); None: only this machine
    address: str | None = None
    workers: int | None = None  # number of workers; None: one per core, or per GPU if ``gpus_per_worker`` is not 0
    threads: int = 1  # cores per worker
    gpus_per_worker: float = 0.0  # GPUs per worker; with a fraction several workers share one
    memory_mb: int | None = None  # memory per worker; None: the amount that the work declares


def parse_engine(text: str) -> str | None:
    """The address in ``ray`` (None: Ray's own variable RAY_ADDRESS, else this machine) or ``ray:ADDRESS``."""
    name, colon, address = text.partition(":")
    if name != "ray" or (colon and not address):
        hint = "Examples: ray, ray:auto, ray:HOST:6379"
        raise UsageError(f"--on {text}: unknown engine", code="unknown-name", value=text, hint=hint)
    return address or os.environ.get("RAY_ADDRESS") or None


class Engine:
    """A connection to Ray, a context manager; processes that it starts on this machine listen on loopback only."""

    def __init__(self, cluster: Cluster, note: Callable[[str], None]) -> None:
        self._cluster, self._note = cluster, note
        self._on_sigterm = signal.getsignal(signal.SIGTERM)
        self._ray = _connected(cluster)
        signal.signal(signal.SIGTERM, self._on_sigterm)  # Ray's own handler leaves processes running

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would leave processes running
        try:
            self._ray.shutdown()
        finally:
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def run(
        self, opener: Callable[[], Callable[[PartT], ResultT]], parts: Sequence[PartT], *, memory_mb: int
    ) -> Iterator[tuple[int, ResultT | PartFailure]]:
        """Process all parts; yields positions and results as the parts end, in any order.

        A part whose worker dies, or that raises an exception other than a CapbenchError, is repeated up to twice.

        ``opener``: called once in each worker for slow initialisation; returns the function that processes a part.
        ``memory_mb``: memory that a worker may need; limits the number of workers.
        """
        memory_mb = self._cluster.memory_mb or memory_mb
        actors = self._start(opener, min(self._count(memory_mb), len(parts)), memory_mb)
        idle, pending = list(actors), iter(enumerate(parts))
        running: dict[Any, tuple[Any, int]] = {}
        shown: set[str] = set()
        try:
            while True:
                while idle and (following := next(pending, None)) is not None:
                    place, part = following
                    actor = idle.pop()
                    do = actor.do.options(max_task_retries=_RETRIES, retry_exceptions=True)
                    running[do.remote(part)] = actor, place
                if not running:
                    return
                for reference in self._ray.wait(list(running))[0]:
                    actor, place = running.pop(reference)
                    idle.append(actor)
                    yield place, self._result(reference, shown)
        finally:
            for actor in actors:
                with contextlib.suppress(Exception):  # the actor or the cluster may have ended
                    self._ray.kill(actor)

    def _result(self, reference: Any, shown: set[str]) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            done: Done = self._ray.get(reference)
        except RayTaskError as error:
            cause = error.cause
            return PartFailure(f"{type(cause).__name__}: {cause}".replace("\n", " "))
        except RayError as error:
            if not self._ray.is_initialized():
                raise ToolError(
                    "the connection to the Ray cluster is lost",
                    hint="Finished parts are saved; run the command again",
                ) from error
            return PartFailure("its worker died three times, possibly for lack of memory")
        for warning in done.warnings:
            if isinstance(warning, CapbenchWarning) and str(warning) not in shown:
                shown.add(str(warning))
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
        # The opener is an argument, not a shared object, since a restarted actor needs it again.
        settings = os.getcwd(), tuple(sys.path), _variables(), cluster.threads
        try:
            return [actor.remote(*settings, opener) for _ in range(count)]
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise UsageError(
                f"the work cannot be pickled for the workers ({' '.join(str(error).split())[:200]})",
                code="unsupported",
                hint="Store objects of a custom metric that cannot be pickled in cached properties; or omit --on",
            ) from error

    def _count(self, memory_mb: int) -> int:
        """Number of workers for which there are resources, at most the requested number."""
        cluster = self._cluster
        needs = {"CPU": cluster.threads, "GPU": cluster.gpus_per_worker, "memory": memory_mb * _MB}
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        room = sum(min(int(node.get(name, 0) / need) for name, need in needs.items() if need) for node in alive)
        requested = cluster.workers or room
        if not room:
            worker = f"{cluster.threads} cores, {cluster.gpus_per_worker:g} GPUs and {memory_mb:,} MB"
            hint = "Reduce --threads, --gpus-per-worker or --worker-memory"
            raise ToolError(f"no machine can run a worker with {worker}", code="unsupported", hint=hint)
        if requested > room:
            self._note(f"{room} of {requested} workers start: there are no cores, GPUs or memory for more")
        return min(requested, room)


def _connected(cluster: Cluster) -> Any:
    for name, value in _RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    require("ray", purpose="--on ray")
    if cluster.address is None:
        # Processes listen on the loopback address, as is the default on Windows and macOS. Ray reads this when it is
        # imported, and has no other setting: it replaces a node address of 127.0.0.1 by a public one.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address is None:
        workers = cluster.workers or max(1, usable_cores() // cluster.threads)
        settings |= {
            "address": "local",
            "include_dashboard": False,
            "num_cpus": workers * cluster.threads,  # the requested number, even if it exceeds the cores
            "object_store_memory": (workers + 1) * _STORE_MB_A_WORKER * _MB,
        }
    else:
        settings["address"] = cluster.address
    try:
        host, _, port = (cluster.address or "").removeprefix("ray://").rpartition(":")
        if host and port.isdecimal():  # not one of Ray's names, such as auto; Ray itself retries for minutes
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(**settings)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    except Exception as error:  # Ray and its client raise many kinds
        where = "on this machine" if cluster.address is None else f"at {cluster.address}"
        raise ToolError(
            f"Ray does not respond {where} ({' '.join(str(error).split())[:200]})",
            value=cluster.address,
            hint="Check the address, 'ray status' there, and RAY_AUTH_MODE=token if the cluster requires tokens"
            if cluster.address
            else "Try 'ray start --head'",
        ) from error
    ray._private.worker._worker_logs_enabled = False  # reports of dead workers on stdout, which is for results
    return ray

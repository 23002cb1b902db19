"""Work split into parts: the protocol (:class:`Spread`), the worker's side, and Ray as the engine (``--on ray``).

Parts are split in one way, whatever the number of workers, and one process gathers all results. So the number of
workers changes no byte of what is written.

Ray starts, watches and restarts the workers, which are its actors. Ray's documentation calls what this uses "actor
fault tolerance": an actor whose process dies is started again (``max_restarts``), and the interrupted call is repeated
(``max_task_retries``), also after an exception (``retry_exceptions``). Each worker has one part at a time, so that its
death concerns no other part.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

from capbench.core.errors import CapbenchError, CapbenchWarning, ToolError, UsageError, install_command
from capbench.core.machine import usable_cores

__all__ = [
    "Cluster",
    "Done",
    "Engine",
    "PartFailure",
    "Spread",
    "Surroundings",
    "Worker",
    "parse_engine",
    "surroundings",
]


@dataclass(frozen=True)
class Surroundings:
    """What a worker takes over from the first process.

    Attributes:
        folder: the working directory, in which relative paths are meant.
        paths: where modules are looked for, so that a user's own metric is found.
        variables: capbench's environment variables.
        threads: cores that the worker may use.
    """

    folder: str
    paths: tuple[str, ...]
    variables: Mapping[str, str]
    threads: int

    def take_over(self) -> None:
        """Set them in this process. Raises OSError if the folder is not there: it must be on a shared file system."""
        from capbench.core.machine import limit_cores

        os.chdir(self.folder)
        sys.path[:] = dict.fromkeys([*sys.path, *self.paths])
        for name in [name for name in os.environ if name.startswith("CAPBENCH_")]:
            del os.environ[name]
        os.environ.update(self.variables)
        limit_cores(self.threads)


def surroundings(threads: int) -> Surroundings:
    """Those of this process."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("CAPBENCH_")}
    return Surroundings(os.getcwd(), tuple(sys.path), variables, threads)


@dataclass(frozen=True)
class Done:
    """What a worker made of a part.

    Attributes:
        result: what the part gave.
        error: what it raised, if no second attempt would mend that.
        warnings: what was warned of meanwhile.
    """

    result: Any = None
    error: CapbenchError | None = None
    warnings: tuple[Warning, ...] = ()


class Worker:
    """The engine's actor.

    Args:
        taken_over: the first process's surroundings.
        opener: gives the function that does a part; called at the first part, so that what it raises has a receiver.
    """

    def __init__(self, taken_over: Surroundings, opener: Callable[[], Callable[[Any], Any]]) -> None:
        taken_over.take_over()
        self._opener = opener
        self._work: Callable[[Any], Any] | None = None

    def do(self, part: Any) -> Done:
        """Do a part. Any exception but a CapbenchError is the engine's matter: it lets the part be done again."""
        with warnings.catch_warnings(record=True) as caught:
            try:
                if self._work is None:
                    self._work = self._opener()
                result, error = self._work(part), None
            except CapbenchError as raised:
                result, error = None, raised
        return Done(result, error, tuple(w.message for w in caught if isinstance(w.message, Warning)))


PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class PartFailure:
    """A part that was tried three times, in vain.

    Attributes:
        reason: why, one line.
    """

    reason: str


class Spread(Protocol):
    """Does parts of a work, several at the same time."""

    def run(
        self, opener: Callable[[], Callable[[PartT], ResultT]], parts: Sequence[PartT], *, memory_mb: int
    ) -> Iterator[tuple[int, ResultT | PartFailure]]:
        """Do all parts; places and results come as the parts end, in any order.

        A part whose worker dies, or that raises anything but a CapbenchError, is tried again, twice.

        Args:
            opener: called once in each worker, for what takes long to open; it gives the function of a part. Opener,
                parts and results travel between processes.
            parts: what to do.
            memory_mb: what a worker may need; no more workers are started than there is memory for.

        Raises:
            CapbenchError: what ``opener`` or a part raised.
        """
        ...


_RETRIES = 2
_FAILED_IN_A_ROW = 2
_CONNECT_S = 10.0
_STORE_MB_A_WORKER = 128
_MB = 1 << 20
_LISTENS_OUTSIDE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
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
    """A connection to Ray; a context manager, in which SIGTERM raises KeyboardInterrupt.

    What it starts on this machine listens on the loopback address alone.

    Args:
        cluster: where and how many.
        note: takes lines for the user.

    Raises:
        UsageError: Ray is not installed.
        ToolError: there is no cluster at the address, or Ray does not start here.
    """

    def __init__(self, cluster: Cluster, note: Callable[[str], None] = lambda _: None) -> None:
        self._cluster, self._note = cluster, note
        # Ray takes SIGTERM over when it starts: it prints a stack and leaves processes behind.
        self._takes_sigterm = threading.current_thread() is threading.main_thread()
        self._before = signal.getsignal(signal.SIGTERM)
        self._end_like_an_interruption()  # also while Ray starts
        try:
            self._ray = _connected(cluster)
        except BaseException:
            self._restore()
            raise
        self._end_like_an_interruption()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._takes_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would leave processes behind
        try:
            self._ray.shutdown()
        finally:
            self._restore()

    def _end_like_an_interruption(self) -> None:
        """Let SIGTERM, with which ``kill`` and job systems end a program, do what Ctrl-C does: Ray is shut down."""
        if self._takes_sigterm:
            signal.signal(signal.SIGTERM, signal.default_int_handler)

    def _restore(self) -> None:
        if self._takes_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def run(
        self, opener: Callable[[], Callable[[PartT], ResultT]], parts: Sequence[PartT], *, memory_mb: int
    ) -> Iterator[tuple[int, ResultT | PartFailure]]:
        """Do all parts; see :class:`capbench.core.workers.Spread`.

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
        with _loopback_only(ray) if cluster.address is None else contextlib.nullcontext():
            ray.init(**settings)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
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


@contextlib.contextmanager
def _loopback_only(ray: Any) -> Iterator[None]:
    """Let the processes that Ray starts listen on the loopback address, as they do by default on Windows and macOS.

    Ray has no other setting for it: it replaces a node address of 127.0.0.1 by one that others can reach.
    """
    constants = ray._private.ray_constants
    in_environment, is_enabled = os.environ.get(_LISTENS_OUTSIDE), constants.ENABLE_RAY_CLUSTER
    os.environ[_LISTENS_OUTSIDE], constants.ENABLE_RAY_CLUSTER = "0", False  # read when Ray is imported
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = is_enabled
        if in_environment is None:
            del os.environ[_LISTENS_OUTSIDE]
        else:
            os.environ[_LISTENS_OUTSIDE] = in_environment


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

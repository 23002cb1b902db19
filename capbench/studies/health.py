"""Checks of the installation for ``capbench doctor``. No check may raise: a failure becomes a line of the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
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
from capbench.core.errors import CapbenchError
from capbench.core.files import cache_dir
from capbench.core.machine import usable_cores
from capbench.text.java import find_java, meteor_jar, tokenizer_jar
from capbench.text.spice.parser import missing_files, spice_folder

_SPACE_NEEDED = 2 << 30
_INSTALL = "pip install --force-reinstall"


State = Literal["ok", "missing", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    state: State  # missing: an optional part is not there; fail: something required does not work
    detail: str
    fix: str = ""  # the command or step that fixes it


def examine(data: str | os.PathLike[str] | None = None, *, start_java: bool = True) -> list[Check]:
    """All checks in order; ``data`` is the value of ``--data``."""
    examinations: list[tuple[str, Callable[[], list[Check]]]] = [
        ("Python", lambda: [Check("Python", "ok", f"{platform.python_version()} ({sys.executable})")]),
        ("capbench", lambda: [Check("capbench", "ok", f"{__version__} in {Path(__file__).parents[2]}")]),
        ("packages", _packages),
        ("METEOR's jar", lambda: [Check("METEOR's jar", "ok", str(meteor_jar()))]),
        ("tokeniser's jar", lambda: [Check("tokeniser's jar", "ok", str(tokenizer_jar()))]),
        ("Java", _java if start_java else lambda: [Check("Java", "missing", "not checked (--no-java)")]),
        ("SPICE's parser", _spice),
        ("cache", _cache),
        ("data", lambda: _data(data)),
        ("metrics", lambda: _metrics(data)),
        ("weights", _weights),
        ("processor", lambda: [Check("processor", "ok", f"{usable_cores()} core(s) usable, {platform.machine()}")]),
        ("GPU", _gpu),
    ]
    checks: list[Check] = []
    for name, look in examinations:
        try:
            checks += look()
        except CapbenchError as error:
            checks.append(Check(name, "fail", error.message, error.hint or ""))
        except Exception as error:  # a broken installation may raise anything; the report must still be complete
            checks.append(Check(name, "fail", f"the check failed ({type(error).__name__}: {error})"))
    return checks


def _packages() -> list[Check]:
    checks, good = [], []
    for text in importlib.metadata.requires("capbench") or []:
        requirement, _, marker = text.partition(";")
        name = re.split(r"[^\w.-]", requirement.strip())[0]
        if "extra" in marker:
            continue
        try:
            good.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing: State = "missing" if marker else "fail"  # by its marker it may be for other platforms
            checks.append(Check(name, missing, "is not installed", f"{_INSTALL} '{requirement.strip()}'"))
    if not good and not checks:
        text = "capbench is not installed, so its dependencies are unknown"
        return [Check("packages", "warn", text, "pip install .")]
    extras = {
        extra: [package for package in requirements if not errors.is_installed(package)]
        for extra, requirements in sorted(errors.extras().items())
    }
    checks.append(Check("extras", "ok", ", ".join(extra for extra, absent in extras.items() if not absent) or "none"))
    if absent := ", ".join(f"{extra} ({', '.join(packages)})" for extra, packages in extras.items() if packages):
        checks.append(Check("extras not installed", "missing", absent))
    return [Check("packages", "ok", ", ".join(good)), *checks]


def _spice() -> list[Check]:
    if not (missing := missing_files()):
        return [Check("SPICE's parser", "ok", str(spice_folder()))]
    detail = f"not set up ({', '.join(missing)} not in {spice_folder()})"
    return [Check("SPICE's parser", "missing", detail, "capbench doctor --install spice")]


def _java() -> list[Check]:
    try:
        java = find_java()
    except CapbenchError as error:
        if error.code != "missing-package":
            raise
        return [Check("Java", "missing", "none; only SPICE requires it (extra 'spice')")]
    return [Check("Java", "ok", f"version {java.version} from {java.origin} ({java.path})")]


def _cache() -> list[Check]:
    fix = "Set CAPBENCH_CACHE to a writable folder"
    folder = cache_dir()
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"capbench")
    except OSError as error:
        return [Check("cache folder", "fail", f"{folder} cannot be written ({error.strerror})", fix)]
    free = shutil.disk_usage(folder).free
    state: State = "ok" if free >= _SPACE_NEEDED else "warn" if free >= 64 << 20 else "fail"
    fix = "" if state == "ok" else "Free some space, or set CAPBENCH_CACHE to a folder on a disk with at least 2 GB"
    space = f"{free / (1 << 30):.1f} GB free on the disk of the cache folder"
    return [Check("cache folder", "ok", str(folder)), Check("disk space", state, space, fix)]


def _data(data: str | os.PathLike[str] | None) -> list[Check]:
    from capbench.datasets.catalog import catalog
    from capbench.datasets.inventory import missing_needs
    from capbench.datasets.root import find_root
    from capbench.datasets.user.judgements import imported_folders

    root = find_root(data)
    if not root.path.is_dir():
        fix = "Reinstall it from its repository: pip install --force-reinstall --no-deps ."
        return [Check("data folder", "fail", f"the embedded sample is missing ({root.path})", fix)]
    found = Check("data folder", "ok", f"{root.path} ({root.origin})")
    if root.is_sample:
        fix = "Set CAPBENCH_DATA to the folder of the published files; 'capbench data info' lists their sources"
        found = Check(
            "data folder", "warn", "the embedded synthetic sample: its numbers say nothing about metrics", fix
        )
    missing = {name: [n.role for n in missing_needs(entry, root)] for name, entry in catalog().datasets.items()}
    installed = [*(name for name, roles in missing.items() if not roles), *imported_folders(root)]
    absent = [
        Check(f"  {name}", "missing", f"missing: {', '.join(roles)}", f"capbench data info {name}")
        for name, roles in missing.items()
        if roles and not root.is_sample
    ]
    return [found, Check("data sets", "ok", ", ".join(installed) or "none"), *absent]


def _metrics(data: str | os.PathLike[str] | None) -> list[Check]:
    """Every registered metric: ready without further inputs (these are what ``all`` stands for), or what it lacks."""
    from capbench.core import plugins
    from capbench.datasets.root import find_root
    from capbench.metrics.base import Metric
    from capbench.metrics.needs import Resources
    from capbench.metrics.registry import metric_names

    resources = Resources()
    with contextlib.suppress(CapbenchError):  # of the data folder, which has a check of its own
        resources = Resources(data=str(find_root(data).path))
    ready: list[str] = []
    checks: list[Check] = []
    for name in metric_names():
        try:
            metric: type[Metric] = plugins.load("capbench.metrics", name)
            missing = " and ".join(reason for _, reason in metric.missing(resources))
        except (CapbenchError, AttributeError) as error:  # a plug-in of another version may miss any attribute
            checks.append(Check(f"  {name}", "fail", str(error), "Update or remove the package that registers it"))
            continue
        if missing:
            checks.append(Check(f"  {name}", "missing", f"requires {missing}"))
        else:
            ready.append(name)
    return [Check("metrics", "ok", f"ready: {', '.join(ready)}"), *checks]


def _weights() -> list[Check]:
    from capbench.weights.registry import entries, models_dir, status

    states = [status(name) for name in entries()]
    ready = [weights.name for weights in states if weights.state == "here"]
    text = f"{', '.join(ready) if ready else 'only those included in capbench'} ({models_dir()})"
    wrong = [weights for weights in states if weights.state == "wrong"]
    what = "{0.path} has SHA-256 {0.sha256}, not {0.expected}"
    failed = [Check(f"  {w.name}", "fail", what.format(w), f"capbench models list {w.name}") for w in wrong]
    return [Check("weights", "ok", text), *failed]


def _gpu() -> list[Check]:
    try:
        import torch
    except Exception as error:  # a torch build for another platform fails in many ways
        if errors.missing_package(error) is not None:
            return [Check("GPU", "missing", "none is used without PyTorch (extra 'networks')")]
        detail = f"torch cannot be imported ({type(error).__name__}: {error})"
        return [Check("GPU", "fail", detail, f"{_INSTALL} torch")]
    if not torch.cuda.is_available():
        return [Check("GPU", "missing", "none; capbench does not require one")]
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return [Check("GPU", "ok", ", ".join(names))]

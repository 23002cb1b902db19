"""The answer of a command of capbench, without anything that may vary from run to run."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.golden_commands import Command

BLANK = {
    "created": "when it ran",
    "seconds": "how long it took",
    "cached": "how many scores came from the cache",
    "capbench": "the version",
}
"""Keys of JSON whose values are not kept, and why."""

DROPPED = {
    r"[\d,]+ scores? came from the cache": "how many scores came from the cache",
    r"preparing METEOR's paraphrase table.*": "the table is made once and kept for later runs",
    r"time: network .*": "how long it took",
}
"""Whole lines that are not kept, and why."""

REPLACED = {
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)": ("<time>", "when it ran"),
    r"(?<=\bin )\d[\d,]*\.?\d* (s|min)\b": ("<seconds>", "how long it took"),
    r"\(\d[\d,.]* images/s\)|\(\d[\d,.]* s an image\)": ("<speed>", "how long it took"),
    r"data:[\w/+.-]+;base64,[A-Za-z0-9+/=]+": ("<picture>", "the pixels of pictures are not compared"),
}
"""Patterns within text, what stands for them, and why."""

_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class Place:
    """The place where commands run."""

    executable: tuple[str, ...]  # the words that start capbench
    work: Path  # the current folder of all commands
    caches: Path  # the folder of the commands' cache folders
    shared: Path  # what all commands take from earlier runs: SPICE's parser, METEOR's table, parses
    data: Path | None  # the folder of the published files, None for the embedded sample
    names: Mapping[str, str]  # what stands for folders and the version in what is kept, by a pattern

    def environment(self, cache: Path) -> dict[str, str]:
        """The variables of a command: none of the user's settings, one thread, English, no terminal."""
        ours = ("CAPBENCH_", "COLUMNS", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        kept |= {
            "CAPBENCH_CACHE": str(cache),
            "CAPBENCH_HOME": str(self.work / "home"),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        if self.data is not None:
            kept["CAPBENCH_DATA"] = str(self.data)
        # Java is the user's choice.
        kept |= {name: value for name, value in os.environ.items() if name.startswith("CAPBENCH_JAVA")}
        return kept

    def cache(self, command: Command) -> Path:
        """The command's cache folder, made on first use."""
        folder = self.caches / (command.cache_of or command.name)
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "meteor").symlink_to(self.shared / "meteor")
            if command.parser != "none":
                (folder / "spice-parser").symlink_to(self.shared / "spice-parser")
            if command.parser == "shared":
                (folder / "scene-graphs.sqlite").symlink_to(self.shared / "scene-graphs.sqlite")
        return folder


def run_command(command: Command, place: Place) -> tuple[dict[str, Any], float]:
    """Run a command. Returns what is kept of it, and how many seconds of processor time it took.

    Raises subprocess.TimeoutExpired: it took more than an hour.
    """
    arguments = [argument.replace("{data}", str(place.data)) for argument in command.arguments]
    began = _processor_time()
    ran = subprocess.run(
        [*place.executable, *arguments],
        cwd=place.work,
        env=place.environment(place.cache(command)),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT_S,
        check=False,
    )
    seconds = _processor_time() - began
    stdout = ran.stdout.decode("utf-8")
    kept = {
        "arguments": list(command.arguments),
        "code": ran.returncode,
        "stdout": _answer(stdout) if "--json" in command.arguments else stdout.splitlines(),
        "stderr": ran.stderr.decode("utf-8").splitlines(),
        "files": {str(path.relative_to(place.work)): _content(path) for path in _files(command, place.work)},
    }
    return _kept(kept, place.names, frozenset(command.blank)), seconds


def _processor_time() -> float:
    """Seconds of all child processes that have ended, which a busy machine does not change much."""
    times = os.times()
    return times.children_user + times.children_system


def varying_names(executable: Sequence[str], work: Path, caches: Path, data: Path | None) -> dict[str, str]:
    """Placeholders for the version and for folders in the record, by a pattern.

    The folders are those of the work, the caches, the data, the sample and the installation.

    Raises SystemExit: capbench does not run.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CAPBENCH_")}
    environment["CAPBENCH_CACHE"] = str(caches / "first")

    def ask(*arguments: str) -> str:
        ran = subprocess.run(
            [*executable, *arguments], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if ran.returncode != 0:
            raise SystemExit(f"{shlex.join(executable)} does not run: {ran.stderr.strip()[-500:]}")
        return ran.stdout

    version = ask("--version").split()[-1]
    sample = json.loads(ask("data", "info", "foil", "--verify", "--json"))["root"]
    folders = {str(work): "<work>", str(caches): "<cache>", sample: "<sample>"}
    if data is not None:
        folders[str(data)] = "<data>"
    command = Path(executable[-1])
    if command.is_absolute():
        folders[str(command.parent.parent)] = "<installation>"
    longest_first = sorted(folders.items(), key=lambda pair: -len(pair[0]))
    return {rf"(?<![\w.]){re.escape(version)}(?!\w|\.\w)": "<version>"} | {
        re.escape(folder): name for folder, name in longest_first
    }


def _files(command: Command, work: Path) -> list[Path]:
    paths: list[Path] = []
    for name in command.files:
        path = work / name
        paths += sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return [path for path in paths if path.exists()]


def _answer(text: str) -> Any:
    """JSON on stdout; the lines where it is none, as after an error."""
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def _content(path: Path) -> Any:
    """Content of a file, as JSON: rows of tables, lines of texts, texts and shapes of drawings, hashes of arrays."""
    ending = path.suffix.lower()
    if ending == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if ending == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if ending == ".csv":
        with open(path, encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    if ending == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path).to_pylist()
    if ending == ".svg":
        return _drawing(path)
    if ending == ".npz":
        return _arrays(path)
    if ending in (".md", ".tex", ".html", ".txt"):
        return path.read_text(encoding="utf-8").splitlines()
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _drawing(path: Path) -> dict[str, list[str]]:
    """The texts of a drawing (of comments beside outlines, too), and all shapes other than letters."""
    tree = ET.parse(path, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    texts: list[str] = []
    shapes: list[str] = []

    def walk(node: ET.Element, group: str) -> None:
        for child in node:
            if _is_text(child):
                texts.append(_spaced("".join(child.itertext())))
                continue
            tag = child.tag.rpartition("}")[2]
            name = child.get("id", "") if tag == "g" else ""
            if tag == "path":
                shapes.append(f"{group}: {_spaced(child.get('d'))}")
            elif tag == "use":
                shapes.append(f"{group}: at {child.get('x')} {child.get('y')}")
            walk(child, name or group)

    walk(tree.getroot(), "")
    return {"texts": texts, "shapes": shapes}


def _is_text(node: ET.Element) -> bool:
    return node.tag is ET.Comment or str(node.tag).endswith("}text")  # type: ignore[comparison-overlap]


def _spaced(text: str | None) -> str:
    return " ".join((text or "").split())


def _arrays(path: Path) -> dict[str, dict[str, Any]]:
    import numpy as np

    arrays: dict[str, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            array = np.ascontiguousarray(archive[name])
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            arrays[name] = {"shape": list(array.shape), "type": str(array.dtype), "sha256": digest}
    return arrays


def _kept(value: Any, names: Mapping[str, str], blank: frozenset[str]) -> Any:
    """The value without what may vary."""
    if isinstance(value, str):
        return _kept_text(value, names)
    if isinstance(value, list):
        if value and all(isinstance(line, str) for line in value):
            lines = (_kept_text(line, names) for line in value if not any(re.fullmatch(p, line) for p in DROPPED))
            return list(lines)
        return [_kept(entry, names, blank) for entry in value]
    if isinstance(value, dict):
        return {
            _kept_text(key, names): _blanked(entry, key) if key in BLANK or key in blank else _kept(entry, names, blank)
            for key, entry in value.items()
        }
    return value


def _blanked(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, f"<{key}>")
    return f"<{key}>"


def _kept_text(text: str, names: Mapping[str, str]) -> str:
    for pattern, name in names.items():
        text = re.sub(pattern, name, text)
    for pattern, (replacement, _) in REPLACED.items():
        text = re.sub(pattern, replacement, text)
    return text


def shared_folder() -> Path:
    """The folder of what all runs share: METEOR's table and parses, and a link to the parser that the user set up."""
    import platformdirs

    user = os.environ.get("CAPBENCH_CACHE") or platformdirs.user_cache_dir("capbench", appauthor=False)
    parser = Path(user).expanduser() / "spice-parser"
    folder = Path(platformdirs.user_cache_dir("capbench-golden", appauthor=False))
    (folder / "meteor").mkdir(parents=True, exist_ok=True)
    link = folder / "spice-parser"
    link.unlink(missing_ok=True)
    link.symlink_to(parser)
    if not parser.is_dir():
        print("SPICE's parser is not there: run 'capbench doctor --install spice'", file=sys.stderr)
    return folder

"""The commands whose output ``golden.py`` keeps and compares, from ``golden/commands.txt``, and the files they read."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "golden"
_FEATURES = "features/sample.h5"


@dataclass(frozen=True)
class Command:
    """One call of capbench."""

    name: str  # the name of its file
    arguments: tuple[str, ...]  # what follows ``capbench``
    code: int  # exit code
    files: tuple[str, ...]  # what it writes and is to be kept, below the work folder; of a folder, all that is in it
    after: tuple[str, ...]  # names of the commands whose files it reads
    cache_of: str  # the command whose cache folder it continues with; default: an empty one of its own
    parser: str  # SPICE's parser: ``none``; ``shared``, with the parses of earlier runs; or ``fresh``
    blank: tuple[str, ...]  # keys of its JSON whose values depend on the machine, and are not kept
    titles: str  # if the tests run it, the command whose JSON says which metric column a title belongs to
    networks: bool  # whether its numbers come from networks, which other processors round otherwise


def _read(text: str) -> dict[str, list[Command]]:
    """Commands by section; see the head of the file for its syntax."""
    words: dict[str, str] = {}
    sections: dict[str, list[Command]] = {}
    for line in re.sub(r"\n +", " ", text).splitlines():
        if not line or line.startswith("#"):
            continue
        if section := re.fullmatch("== (.+)", line):
            commands = sections[section[1]] = []
        elif word := re.fullmatch(r"(\w+) = (.+)", line):
            words[f"{{{word[1]}}}"] = word[2]
        elif command := re.fullmatch(r"([\w-]+)(?: \[(.*?)\])?: (.+)", line):
            rest = re.sub(r"\{\w+\}", lambda found: words.get(found[0], found[0]), command[3])
            options = dict(option.split("=") for option in (command[2] or "").split())
            commands.append(_command(command[1], tuple(shlex.split(rest)), options))
        else:
            raise SystemExit(f"golden/commands.txt: '{line}' is not a command")
    return sections


def _command(name: str, arguments: tuple[str, ...], options: dict[str, str]) -> Command:
    files, after, blank = (
        tuple(options.pop(key, "").split(",")) if key in options else () for key in ("files", "after", "blank")
    )
    networks = _FEATURES in arguments or "demo" in arguments
    cache_of = options.pop("cache_of", "")
    needed = dict.fromkeys((*after, *(["extract"] * (networks and name != "extract")), *([cache_of] * bool(cache_of))))
    return Command(
        name,
        arguments,
        int(options.pop("code", "0")),
        files,
        tuple(needed),
        cache_of,
        options.pop("parser", "none"),
        blank,
        options.pop("test", ""),
        networks,
        **options,  # none is left: another one is an error
    )


_COMMANDS = _read((_FOLDER / "commands.txt").read_text(encoding="utf-8"))
SAMPLE = _COMMANDS["sample"]
"""What runs on the embedded sample."""
REAL = _COMMANDS["published"]
"""What runs on the published files; ``{data}`` stands for their folder."""


def choose(commands: Sequence[Command], pattern: str) -> list[Command]:
    """The commands whose names fit a pattern such as ``correlate*``, and those whose files they read, in order."""
    return with_needed(commands, [command.name for command in commands if fnmatch.fnmatch(command.name, pattern)])


def with_needed(commands: Sequence[Command], names: Sequence[str]) -> list[Command]:
    """The commands of these names and those whose files they read, in the table's order."""
    by_name = {command.name: command for command in commands}
    needed: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += by_name[name].after
    return [command for command in commands if command.name in needed]


def write_inputs(folder: Path) -> None:
    """Write what the commands on the sample read: captions, judgements, a study, a training, features of a grid."""
    import numpy as np

    shutil.copytree(_FOLDER / "inputs", folder, dirs_exist_ok=True)
    cells = np.random.default_rng(1).normal(size=(3, 49, 8)).astype(np.float32)
    edges = np.arange(8) / 7
    boxes = [[edges[x], edges[y], edges[x + 1], edges[y + 1]] for y in range(7) for x in range(7)]
    np.savez(
        folder / "grid.npz",
        image_names=np.array(["a.jpg", "b.jpg", "c.jpg"]),
        features=cells,
        boxes_normalised_xyxy=np.array(boxes, dtype=np.float32),
    )

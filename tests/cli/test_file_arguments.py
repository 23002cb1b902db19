"""Every command is given, for each file or folder that it takes, one that cannot be right.

The commands and their parameters are read from the app itself, so that a new one cannot be forgotten: ``SOUND`` says
for each command what it is given beside. Whatever it is given, a command ends well or with one line and exit code 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capbench.datasets.root import sample_dir
from capbench.features.writing import StoreWriter
from tests.cli.commands import commands
from tests.conftest import Ran
from tests.features.fakes import PRINT, made_up

torch = pytest.importorskip("torch")

# What a command is given beside the parameter in question: options by their names, arguments by theirs and "=".
SOUND: dict[str, str] = {
    "extract-features": "--images {picture} --detector sample --out new.h5",
    "extract-features --dry-run": "--images {picture} --detector sample",
    "features import": "files={npy} --format scan --ids {ids} --out new.h5",
    "score": "--metric tiger {sees}",
    "score ": "--metric bleu-1 --candidates {candidates} --references {references}",
    "data items": "dataset=flickr8k-expert --data {sample} --out new",
    "compare-systems": "systems={candidates} systems=other={candidates} --references {references} --metric bleu-1 "
    "--bootstrap 100 --permutations 100",
    "explore explain": "--image f8k_003 {sees}",
    "correlate": "--metric tiger {sees}",
    "correlate ": "study=demo",
    "compare": "metric=bleu-1 metric=tiger {sees}",
    "train combination": "--metric bleu-1 --metric tiger --bootstrap 100 {sees}",
    "rank": "metric=bleu-1 metric=tiger --tasks {tasks} --permutations 100 {seen}",
    "leaderboard": "names=bleu-1 names=tiger --column flickr8k-expert --bootstrap 100 --permutations 100 --html "
    "new.html --latex new.tex {seen}",
    "submit check": "submission={submission} --data {sample}",
    "leaderboard ": "--from {leaderboard}",
    "explore retrieve": "--metric tiger --captions {captions} {seen}",
    "explore examples": "--metric tiger --number 1 {sees}",
    "explore words": "study=faier-table5 {seen}",
    "papers": "name=tiger-figure6 --data {sample}",
    "figure report": "inputs={results} --out new.html --data {sample}",
    "metrics --check": "metric=tiger {seen}",
    "doctor": "--data {sample}",
    "features info": "stores={store}",
    "features info --verify": "stores={store}",
    "features merge": "out=new.h5 stores={store}",
    "features pool": "store={store} out=new.h5",
    "features export": "store={store} out=new",
    "features show": "image=f8k_003 --features {store} --data {sample} --out a.png",
    "models add": "name=sample file={model}",
    "models combine": "models={model} models={model} --out new.yaml",
    "figure forest": "inputs=bleu-1 inputs=tiger --bootstrap 100 {sees}",
    "figure forest ": "--from {compared}",
    "figure significance": "inputs=bleu-1 inputs=tiger --bootstrap 100 {sees}",
    "figure significance ": "--from {compared}",
    "figure curves": "inputs={results} --out new.svg",
    "figure ratings": "inputs=bleu-1 inputs=tiger {sees}",
    "figure score-groups": "inputs=bleu-1 inputs=tiger {sees}",
    "figure layers": "--metric vilbertscore --bootstrap 100 {sees}",
    "figure layers ": "inputs=vilbertscore-figure3",
    "figure training-log": "inputs={log} --out new.svg",
    "data info": "dataset=flickr8k-expert --data {sample}",
    "data info --verify": "dataset=nocaps --data {sample}",
    "data download": "target=nocaps --data {folder} --url file:///nowhere",
    "data import": "file={judgements} --name mine --data {folder}",
    "data parses export": "names=new.parses",
    "data parses import": "names={parses}",
    "data parses make": "names={captions} --data {sample}",
    "train word-vectors": "--captions {captions} --out new.bin --epochs 1",
    "train scan": "config={config} --out run",
    "train scan ": "config={config} --evaluate test --model {model}",
    "train faier": "config=faier-flickr8k --out run --data {sample} --features {store}",
    "train faier ": "config=faier-flickr8k --evaluate test --model {model}",
    "train vilbert": "config=vilbert-flickr8k --out run --data {sample} --features {store}",
    "train nneval": "config=nneval-coco --out run --data {sample}",
    "train leic": "config=leic-flickr8k --out run --data {sample}",
    "train reo-covariance": "--model {model} --features {store} --captions {captions} --out new.npz",
    "doctor --install spice": "--from {folder}",
}
SEEN = "--data {sample} --features {store} --model {model}"


def given(command: str) -> list[tuple[str, str]]:
    """The parameters of a command and their values."""
    text = SOUND[command].replace("{sees}", f"--dataset flickr8k-expert {SEEN}").replace("{seen}", SEEN)
    words = iter(text.split())
    return [
        (word, next(words)) if word[:2] == "--" else (word.partition("=")[0], word.partition("=")[2]) for word in words
    ]


# What stands for a file or folder in a command's help.
FILES = ("FILE", "DIR", "PATH", "STORE", "MODEL", "STUDY", "CONFIG", "OUT", "INPUT", "NAME|FILE")
WRITTEN = {"out", "--out", "--report", "--html", "--latex", "data parses export names", "train combination --save"}


@dataclass(frozen=True)
class Parameter:
    """One file or folder that a command takes."""

    command: str
    name: str


def _parameters() -> Iterator[Parameter]:
    for name, command in commands():
        for parameter in command.params:
            opts = sorted(parameter.opts, key=len)
            metavar = (parameter.metavar or "").removeprefix("[NAME=]").removesuffix("...").strip("[]")
            metavar = metavar.partition(".")[0]
            if metavar in FILES or "pathlib" in str(getattr(parameter, "type_descriptor", "")):
                yield Parameter(name, opts[-1])


PARAMETERS = list(_parameters())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small files of every kind that commands take."""
    import json

    from capbench.datasets.flickr8k import Flickr8kExpert
    from capbench.datasets.root import find_root
    from capbench.metrics.scan.files import save_scan
    from capbench.metrics.scan.network import Scan, ScanOptions
    from capbench.text.vocabulary import Vocabulary
    from tests.training.world import make_world, settings

    folder = tmp_path_factory.mktemp("sound")
    judged = Flickr8kExpert(find_root(sample_dir())).load(Flickr8kExpert.protocol().items)[0]
    with StoreWriter(folder / "a.h5", PRINT) as writer:
        for image in dict.fromkeys(item.image for item in judged.items):
            writer.add(made_up(image, size=8))
        writer.finish()
    words = Vocabulary.build([text for item in judged.items for text in item.references])
    options = ScanOptions(vocabulary_size=len(words), word_dim=4, embed_dim=4, image_dim=8)
    save_scan(folder / "scan.safetensors", Scan(options, torch.Generator().manual_seed(1)), words, {})
    np.save(folder / "a.npy", np.ones((2, 3, 4), np.float32))
    texts = {
        "ids.txt": "a\nb\n",
        "candidates.json": json.dumps([{"image_id": "a", "caption": "a dog"}]),
        "references.json": json.dumps({"a": ["a dog", "the dog"]}),
        "j.csv": "image,candidate,reference_1,rating\na,a dog,the dog,2\nb,a cat,the cat,4\n",
        "tasks.yaml": "schema: 1\nname: t\ntitle: T\ntasks: [{name: a, protocol: thumb/no-human/total-pearson}]\n",
        "log.jsonl": json.dumps({"kind": "step", "step": 1, "epoch": 1, "loss": 1.0, "lr": 0.1, "seconds": 1.0}) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    world = make_world(folder / "world")
    config = folder / "tiny.yaml"
    import yaml

    config.write_text(yaml.safe_dump(settings(world, epochs=1).to_dict()))
    (folder / "x.parses").write_bytes(b"capbench-parses 2\n")
    (folder / "empty").mkdir()
    return {
        "sample": str(sample_dir()),
        "store": str(folder / "a.h5"),
        "model": str(folder / "scan.safetensors"),
        "picture": str(sample_dir() / "flickr8k" / "images" / "f8k_003.png"),
        "npy": str(folder / "a.npy"),
        "ids": str(folder / "ids.txt"),
        "candidates": str(folder / "candidates.json"),
        "references": str(folder / "references.json"),
        "captions": str(folder / "references.json"),
        "judgements": str(folder / "j.csv"),
        "results": str(folder / "references.json"),
        "compared": str(folder / "references.json"),
        "log": str(folder / "log.jsonl"),
        "parses": str(folder / "x.parses"),
        "config": str(config),
        "tasks": str(folder / "tasks.yaml"),
        "leaderboard": str(folder / "references.json"),
        "folder": str(folder / "empty"),
        "submission": str(folder / "empty"),
    }


def _bad(folder: Path, ending: str) -> dict[str, str]:
    """Paths at which there is nothing of use, by what is wrong with them."""
    place = folder / "bad"
    place.mkdir()
    (place / f"empty{ending}").write_bytes(b"")
    (place / f"binary{ending}").write_bytes(np.random.default_rng(1).bytes(5000))
    (place / f"folder{ending}").mkdir()
    return {kind: str(place / f"{kind}{ending}") for kind in ("missing", "empty", "binary", "folder")}


def _argv(command: str, parameter: Parameter, value: str, sound: dict[str, str]) -> list[str]:
    argv, placed = command.split(), False
    for name, text in given(command):
        here = name == parameter.name and not placed
        placed |= here
        text = value if here else text.format(**sound)
        argv += [name, text] if name.startswith("--") else [text]
    return argv if placed else [*argv, *([parameter.name] if parameter.name.startswith("--") else []), value]


def _ending(command: str, parameter: Parameter) -> str:
    value = next((text for name, text in given(command) if name == parameter.name), "")
    return Path(value).suffix


def _cases() -> Iterator[tuple[str, Parameter]]:
    for parameter in PARAMETERS:
        words = parameter.command.split()
        ways = [command for command in SOUND if command.split()[: len(words)] == words]
        naming = [command for command in ways if parameter.name in dict(given(command))]
        yield from ((command, parameter) for command in naming or ways[:1])


# One case of each kind of file; all others take minutes.
USUAL = {
    "score --candidates", "score --references", "score--out", "score--data", "score--features", "score--model",
    "score--scores", "correlate study", "features importfiles", "data importfile", "train scanconfig",
    "data parses importnames", "extract-features--images", "doctor --install spice--from",
}  # fmt: skip


def _params() -> Iterator[Any]:
    for command, parameter in _cases():
        case = f"{command}{parameter.name}"
        marks = () if case in USUAL else pytest.mark.slow
        yield pytest.param(command, parameter, id=case, marks=marks)


def test_every_command_that_takes_files_is_tried() -> None:
    assert {parameter for _, parameter in _cases()} == set(PARAMETERS)
    assert {f"{command}{parameter.name}" for command, parameter in _cases()} >= USUAL


@pytest.mark.parametrize(("command", "parameter"), list(_params()))
def test_a_file_that_cannot_be_right_is_one_line(
    command: str,
    parameter: Parameter,
    sound: dict[str, str],
    tmp_path: Path,
    capbench: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = not {parameter.name, f"{command.strip()} {parameter.name}"}.isdisjoint(WRITTEN)
    bad = _bad(tmp_path, _ending(command, parameter))
    for kind, path in bad.items():
        if written and kind in ("missing", "empty", "binary"):
            continue  # a file may be written there
        folder = tmp_path / "work" / kind
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("CAPBENCH_HOME", str(folder / "home"))
        ran = capbench(*_argv(command, parameter, path, sound))
        shown = f"{kind}: {ran.code} {ran.err}"
        assert ran.code in (0, 1, 2), shown
        errors = [line for line in ran.err.splitlines() if line.lower().startswith("error:")]
        assert len(errors) == (ran.code == 2), shown
        if not written and kind == "missing":
            assert ran.code, shown

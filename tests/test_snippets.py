"""Every code block of README and docs runs: commands on the embedded sample, studies, tables and programs.

The blocks of a page run in their order, in a folder with the files that pages name (``stage``). Commands that cannot
run in a test are listed in ``NOT_RUN`` with the reason; they are parsed, so that a renamed option is found.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import typer.main
import yaml

import capbench as library
from capbench.cli.app import app
from capbench.core.files import sha256_file
from capbench.datasets.root import sample_dir
from capbench.studies.study_file import load_study
from capbench.studies.submissions import load_card
from capbench.studies.task_file import load_tasks
from tests.cli.commands import commands
from tests.conftest import Ran, share_paraphrases
from tests.metrics.clip import plain_clip
from tests.metrics.nneval.stored import without_parser, write_vectors, write_weights

ROOT = Path(__file__).resolve().parent.parent
_Value = TypeVar("_Value")
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if ROOT / "docs" / "cli" not in page.parents
]
RUN_ELSEWHERE = {
    ("docs/python.md", "python"): "tests/api/test_documented.py",
    ("docs/extend.md", "python"): "tests/test_docs.py",
    ("docs/extend.md", "toml"): "tests/test_docs.py",
}
"""Page and language of blocks that other tests run."""

_TRAINING = "trains on all of Flickr8k or COCO; tests/training and the tests of each metric train small networks"
_PACKAGE = "requires an installed package; tests/test_docs.py and tests/examples install it"
_PUBLISHED = "requires published weights of six layers; tests/metrics/vilbert has random ones"
NOT_RUN = {
    "data download *": "downloads; tests/datasets has a local server",
    "* --on ray*": "starts Ray; tests/cluster",
    "data parses *": "starts SPICE's parser; tests/cli/test_data.py",
    "leaderboard *": "parses captions for SPICE; tests/cli/test_rank.py",
    "papers ?*": "requires the published judgements; tests/cli/test_papers.py",
    "train scan *": _TRAINING,
    "train faier *": _TRAINING,
    "train vilbert *": _TRAINING,
    "train leic *": _TRAINING,
    "* leic=results/train/*": _TRAINING,
    "* leic=M.safetensors *": _TRAINING,
    "* leic.image=mean *": _TRAINING,
    "train nneval *": _TRAINING,
    "train clip *": _PACKAGE,
    "* dual-encoder *": _PACKAGE,
    "* album *": _PACKAGE,
    "*vilbert-multi-task *": _PUBLISHED,
    "*vilbert-pretrained *": _PUBLISHED,
    "* vilbertscore.layer=all *": _PUBLISHED,
}
"""Commands that are only parsed: a pattern of the words after ``capbench``, and the reason."""
PARTIAL = {
    "correlate tiger-table1 *": "TIGEr's rows require features and a network",
    "correlate field-2025-clip *": "other metrics of the table are published numbers only",
    "correlate faier-table1 *": "other variants require other networks",
    "rank * --scores *": "the file has scores for one data set",
}
"""Commands that may end with exit code 1, and the reason."""
BEFORE = {
    "features merge *": [f"extract-features --images photos --out features/all.h5 --shard {n}/4" for n in (1, 2, 3, 4)],
    "features import trainval_36.tsv *": ["features export features/sample.h5 trainval_36.tsv"],
    "features pool features/grid.h5 features/grid-pyr30.h5 *": [
        "features import grid.npz --detector grid --out features/grid.h5"
    ],
    "figure report table1 table2 *": ["correlate tiger-table2 --out table2"],
}
"""Commands that a page's text presumes."""
PARSED = {"docs/paper-weights.md": "requires the authors' weights; tests/test_paper_weights.py has random ones"}
"""Pages whose commands are only parsed."""
NOT_PYTHON = {"docs/nneval.md": "tensorflow, which capbench never uses"}
"""Pages whose program requires another package."""
NOT_CAPBENCH = {"make", "pip", "ray", "export", ".", "python", "cd", "awk"}
"""First words of other commands, which are not run."""
SLOW = {"docs/explain.md", "docs/faier.md", "docs/figures.md", "docs/report.md"}
"""Pages whose commands draw many pictures."""
TASKS = {"retrieval", "image", "words"}
"""Keys of a study that replace its protocols."""
PLACEHOLDERS = {"STORE": "features.h5", "IMAGE": "f8k_003", "MODEL": "faier.safetensors", "…": ""}
"""Words that stand for files."""


@dataclass(frozen=True)
class Block:
    """A code block of a page, with the word after its fence."""

    page: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Command lines: after ``$``, after ``run:``, or, in a block without language, all lines with capbench."""
        text = re.sub(r"\\\n\s*", " ", self.text)
        if self.language == "yaml":
            text = re.sub(r"run: > ", "run: ", re.sub(r"\n {6,}", " ", text))
        start = {"": "(?=capbench )", "yaml": r"\s*- run: "}.get(self.language, r"\$ ")
        return [one.strip() for line in re.findall(rf"^{start}(.*)$", text, re.MULTILINE) for one in line.split("&&")]


def blocks(page: str) -> list[Block]:
    """The code blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fences = re.finditer(r'^ *```(\w*)(?: title=".*?")?\n(.*?)^ *```$', text, re.MULTILINE | re.DOTALL)
    return [Block(page, one[1], textwrap.dedent(one[2])) for one in fences]


def found(patterns: Mapping[str, _Value], words: list[str]) -> _Value | None:
    """The value of the first pattern that fits a command."""
    return next((value for key, value in patterns.items() if fnmatchcase(" ".join([*words, ""]), key)), None)


@pytest.fixture(scope="module")
def stage(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the pages name, made from the sample."""
    folder = tmp_path_factory.mktemp("stage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "cache").mkdir()
        share_paraphrases(folder / "cache")
        patch.setenv("CAPBENCH_CACHE", str(folder / "cache"))
        patch.delenv("CAPBENCH_DATA", raising=False)
        _captions_and_judgements()
        _features_and_weights(sample_store)
        _modules()
    return folder


def _captions_and_judgements() -> None:
    """Captions, references, ratings, scores and a combination."""
    items = library.load("flickr8k-expert").items
    references = {item.image: item.references for item in items[:80]}
    new = {image: texts[0] for image, texts in references.items()}
    old = {item.image: item.candidate for item in items[:80]}
    for name in ("references", "captions", "refs"):
        Path(f"{name}.json").write_text(json.dumps(references))
    for name, captions in {"new": new, "results": new, "old": old, "main": old}.items():
        Path(f"{name}.json").write_text(json.dumps(captions))
    rows = [
        [item.image, item.candidate, *(references or ("",) * 2)[:2], 1 + number % 5]
        for number, item in enumerate(items[:80])
        for references in [item.references]
    ]
    table = ["image_id,caption,ref1,ref2,score", *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    Path("ratings.csv").write_text("\n".join(table) + "\n")
    for name in ("fleur", "scores", "overlap", "fleur_flickr8k_expert"):
        column = name.partition("_")[0]
        lines = [f'{item.image},"{item.candidate}",{len(item.candidate) % 7 / 7}' for item in items]
        Path(f"{name}.csv").write_text("\n".join([f"image,caption,{column}", *lines]) + "\n")
    (card,) = (block.text for block in blocks("docs/leaderboard.md") if "\nfiles:" in block.text)
    folder = Path("results/submissions/overlap")
    folder.mkdir(parents=True)
    shutil.copy("overlap.csv", folder)
    (folder / "card.yaml").write_text(re.sub("[0-9a-f]{64}", sha256_file("overlap.csv"), card))
    library.combine("flickr8k-expert", metrics=["bleu-1", "rouge-l"], folds=3, resamples=100, save="text.json")


def _features_and_weights(store: Path) -> None:
    """Pictures, stores, boxes, networks and word vectors."""
    shutil.copytree(sample_dir() / "flickr8k" / "images", "IMAGES")
    # Links, since the default detector of other images than the sample's is downloaded.
    pictures = sorted((sample_dir() / "flickr8k" / "images").iterdir())
    for name in ("photos", "my-pictures"):
        Path(name).mkdir()
        for picture in pictures[:4]:
            Path(name, picture.name).symlink_to(picture)
    Path(f"dog{pictures[0].suffix}").symlink_to(pictures[0])
    Path("features").mkdir()
    for name in ("features/sample", "features", "my", "grid", "F", "features/flickr8k"):
        shutil.copy(store, f"{name}.h5")
    library.extract_features(f"dog{pictures[0].suffix}", out="dogs.h5")
    images = [picture.stem for picture in pictures]
    rng, edges = np.random.default_rng(1), np.arange(8, dtype=np.float32) / 7
    cells = [[edges[x], edges[y], edges[x + 1], edges[y + 1]] for y in range(7) for x in range(7)]
    features = rng.normal(size=(len(images), 49, 8)).astype(np.float32)
    np.savez("grid.npz", image_names=images, features=features, boxes_normalised_xyxy=np.array(cells))
    boxes = np.tile(np.array([0, 0, 0.5, 0.5], np.float32), (len(images), 20, 1))
    classes = {"class_ids": rng.integers(0, 80, boxes.shape[:2]), "class_scores": np.full(boxes.shape[:2], 0.9)}
    np.savez("yolox_nano_boxes.npz", image_names=images, boxes_normalised_xyxy=boxes, **classes)  # type: ignore[arg-type]
    weights = Path(library.__file__).parent / "weights" / "sample"
    trained = "results/train/vilbert-flickr8k-seed1/model"
    Path(trained).parent.mkdir(parents=True)
    names = {"scan": "scan", "model": "scan", "seed1": "scan", "seed2": "scan", "seed3": "scan"}
    for name, network in {**names, "faier": "faier", trained: "vilbert"}.items():
        for file in weights.glob(f"sample_{network}.*"):
            shutil.copy(file, file.name.replace(f"sample_{network}", name))
    write_vectors(Path("vectors.bin"))
    write_weights(Path("weights.npz"))
    state = plain_clip.random_state()
    plain_clip.write_transformers(Path("clip-vit-base-patch32"))
    plain_clip.write_checkpoint(Path("clip_ViT-B-32.pth"), state)


MODULE = """
import numpy as np
from capbench import ExplainedCandidate, Explanation, Metric


class MyMetric(Metric):
    name, columns, titles, citation = "my-metric", ("my-metric",), {"my-metric": "My metric"}, "an example"

    def statistics(self, items, progress):
        return np.array([[float(len(item.candidate))] for item in items])

    def explain(self, subject):
        shown = [
            ExplainedCandidate(item.candidate, item.references, human, {"length": 1.0})
            for item, human in zip(subject.items, subject.humans)
        ]
        return Explanation("My metric", subject.image, tuple(shown), self.signature(), None)
"""


def _modules() -> None:
    """The modules that commands name."""
    programs = [block.text for block in blocks("docs/extend.md") if block.language == "python"]
    for name, start in {"length_metric": "class LengthRatio", "stripes": "class Stripes"}.items():
        (text,) = (text for text in programs if start in text)
        Path(f"{name}.py").write_text(text)
    Path("my_metrics.py").write_text("def overlap(candidate, references):\n    return float(len(candidate))\n")
    for name in ("my_metric", "mymodule"):
        Path(f"{name}.py").write_text(MODULE)


def parse(words: list[str]) -> None:
    """Parse a command's arguments without running it; raises an error of typer."""
    context = typer.main.get_group(app).make_context("capbench", words)
    while hasattr(context.command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None, name
        context = command.make_context(name, rest, parent=context)


def words_of(line: str) -> tuple[list[str], str | None]:
    """Words of a command without its comment, and the file of its output."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line, comments=True)]
    words = [word for word in words if word]
    words = [re.sub("=(" + "|".join(PLACEHOLDERS) + ")$", lambda found: f"={PLACEHOLDERS[found[1]]}", w) for w in words]
    return (words[:-2], words[-1]) if ">" in words else (words, None)


def makes(target: str) -> bool:
    """True if the Makefile has a target."""
    page = ROOT / "scripts/reproduce" / f"{target.removeprefix('reproduce-')}.mk"
    return page.exists() or f"\n{target}:" in (ROOT / "Makefile").read_text(encoding="utf-8")


def run(line: str, capbench: Callable[..., Ran]) -> str:
    """Run a command line of a page, or parse it; the output."""
    words, out = words_of(line)
    if words[0] == "echo" and out:
        Path(out).write_text(words[1])
        return ""
    if words[:2] == ["python", "-c"]:
        exec(words[2], {})
        return ""
    if words[0] != "capbench":
        assert words[0] in NOT_CAPBENCH, line
        assert words[0] != "make" or makes(words[1]), line
        return ""
    words = words[1:]
    if reason := found(NOT_RUN, words):
        if reason != _PACKAGE:  # without which the command does not exist
            parse(words)
        return ""
    for before in found(BEFORE, words) or ():
        assert capbench(*before.split()).code in (0, 1), before
    words = [name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    ran = capbench(*words)
    assert ran.code in ((0, 1) if found(PARTIAL, words) else (0,)), (line, ran.err[-1000:], ran.out[-1000:])
    if out:
        Path(out).write_text(ran.out)
    return ran.out


def read(block: Block) -> None:
    """Read a file that a page shows as capbench reads it."""
    if block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "python":
        exec(block.text, {"__name__": "__main__"})
    elif block.language == "json" or block.text.startswith("image,"):
        name = "shown.jsonl" if block.language == "json" else "shown.csv"
        Path(name).write_text(block.text)
        assert library.import_data(name, "shown", user=True, replace=True).items > 0
    elif block.language == "yaml" and not block.commands:
        shown = yaml.safe_load(block.text)
        if "schema" in shown:
            path = Path(f"{shown['name']}.yaml")
            path.write_text(block.text)
            readers: dict[str, Callable[[Path], object]] = {
                "tasks": load_tasks,
                "training_data": load_card,
            }
            next((read for key, read in readers.items() if key in shown), load_study)(path)
        else:
            for key, value in shown.items():  # parts of a study
                protocols = {} if key in TASKS else {"protocols": ["flickr8k-expert"]}
                study = {"schema": 1, "name": "part", **protocols, "metrics": ["cider", "tiger"], key: value}
                Path("part.yaml").write_text(yaml.safe_dump(study))
                load_study("part.yaml")


def test_the_lists_name_commands_that_pages_show() -> None:
    shown = [" ".join([*words_of(line)[0][1:], ""]) for page in PAGES for one in blocks(page) for line in one.commands]
    unused = [key for key in (*NOT_RUN, *PARTIAL, *BEFORE) if not any(fnmatchcase(line, key) for line in shown)]
    assert unused == []


def test_the_options_in_the_text_of_a_page_exist() -> None:
    options = {
        words: {name for one in command.params for name in one.opts + one.secondary_opts}
        for words, command in commands()
    }
    unknown = []
    for page in (page for page in PAGES if page != "docs/migrating.md"):  # which names former options
        text = re.sub("^ *```.*?^ *```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for code in re.findall("`([^`]+)`", text):
            named = [name for name in options if f"capbench {name} " in f"{code} "]
            known = {"--help", "--help-all", "--version"}.union(*(options[name] for name in named or options))
            words = re.split(r"[\s=/|,]+", code)
            wrong = {word for word in words if re.fullmatch(r"--[a-z][\w-]*|-[A-Za-z]", word)} - known
            if wrong and words[0] not in NOT_CAPBENCH:
                unknown.append((page, code))
    assert unknown == []


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in SLOW)) for page in PAGES if blocks(page)],
)
def test_the_code_of_a_page_runs(
    page: str, stage: Path, capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(stage, folder, symlinks=True, ignore=shutil.ignore_patterns("cache"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])  # module:Class puts the working folder there
    for name in ("length_metric", "stripes", "my_metrics", "my_metric", "mymodule"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("CAPBENCH_CACHE", str(stage / "cache"))
    without_parser(monkeypatch)
    for block in blocks(page):
        elsewhere = RUN_ELSEWHERE.get((page, block.language))
        if elsewhere:
            assert Path(page).name in (ROOT / elsewhere).read_text(encoding="utf-8"), elsewhere
            continue
        if not (block.language == "python" and page in NOT_PYTHON):
            read(block)
        for line in block.commands:
            if page in PARSED and line.startswith("capbench "):
                parse(words_of(line)[0][1:])
            else:
                run(line, capbench)


@pytest.mark.slow
@pytest.mark.real_data
def test_the_numbers_of_a_page_are_those_of_the_published_data(
    real_data: Path, capbench: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPBENCH_DATA", str(real_data))
    for file in (real_data / "external_scores").iterdir():
        shutil.copy(file, tmp_path)
    of_page = blocks("docs/different-number.md")
    compared = 0
    for block, shown in pairwise(of_page):
        if shown.language == "text":
            printed = [line.split() for line in [run(line, capbench) for line in block.commands][-1].splitlines()]
            rows = [line.split() for line in shown.text.splitlines() if re.search(r" \d\d\.\d", line)]
            assert all(row in printed for row in rows), (block.commands, rows)
            compared += len(rows)
    assert compared == 9

"""Crisscrossed Captions: ratings of captions with images and with each other, joined to COCO's captions by number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from capbench.core.records import Judgements
from capbench.datasets.opening import open_dataset
from capbench.datasets.root import find_root
from tests.conftest import Ran
from tests.datasets.native_files import five, root, write

SITS_HEAD = "caption,image,agg_score,sampling_method\n"
STS_HEAD = "caption1,caption2,agg_score,sampling_method\n"
# Captions by image, in COCO's order; numbers of captions by image in the order of the rating file, which is another.
CAPTIONS = {
    "COCO_val2014_000000000001.jpg": [*five("a dog"), "a sixth caption"],
    "COCO_val2014_000000000002.jpg": five("two cats"),
}
NUMBERS = {"COCO_val2014_000000000001.jpg": (21, 9, 100, 12, 3), "COCO_val2014_000000000002.jpg": (8, 7, 5, 6, 44)}
FIRST, SECOND = CAPTIONS


def sentence(number: int) -> str:
    return f"COCO_val2014:sentid:{number}"


def sits_rows() -> list[str]:
    known = [
        f"{sentence(n)},{image},{5 - 0.2 * place:g},c2i_original"
        for image, numbers in NUMBERS.items()
        for place, n in enumerate(numbers)
    ]
    # A crossed caption comes first, as in the published file: the text of 44 is known only from later rows.
    return [f"{sentence(44)},{FIRST},1.5,c2i_intrasim", *known, f"{sentence(3)},{SECOND},0.5,c2i_intrasim"]


def sts_rows() -> list[str]:
    pairs = [(3, 9, 4.0, "c2c_cocaption"), (44, 12, 0.6, "c2c_isim"), (5, 8, 3.0, "c2c_cocaption"), (100, 6, 1, "c")]
    return [f"{sentence(a)},{sentence(b)},{score:g},{method}" for a, b, score, method in pairs]


def build(folder: Path, place: str = "cxc", split: str = "val") -> Path:
    write(folder / f"coco/karpathy_{split}_captions.json", json.dumps(CAPTIONS))
    write(folder / place / f"sits_{split}.csv", SITS_HEAD + "\n".join(sits_rows()) + "\n")
    write(folder / place / f"sts_{split}.csv", STS_HEAD + "\n".join(sts_rows()) + "\n")
    return folder


def load(folder: Path, name: str, items: str) -> Judgements:
    dataset = open_dataset(name, root(folder))
    (loaded,) = dataset.load(dataset.selections[items])
    return loaded


@pytest.mark.parametrize(
    ("place", "split", "suffix"), [("cxc", "val", ""), ("open/cxc", "val", ""), ("cxc", "test", "@test")]
)
def test_captions_are_joined_in_the_order_of_their_numbers(place: str, split: str, suffix: str, tmp_path: Path) -> None:
    loaded = load(build(tmp_path, place, split), f"cxc-sits{suffix}", "own-caption-out")
    by_id = {(item.image, item.candidate_id): item for item in loaded.items}
    ours = CAPTIONS[FIRST]
    image = FIRST.removesuffix(".jpg")
    for place_, number in enumerate((3, 9, 12, 21, 100)):  # ascending as numbers, not as text
        item = by_id[image, f"sentid:{number}"]
        assert item.candidate == ours[place_]
        assert item.references == tuple(text for text in ours[:5] if text != item.candidate)
        assert item.group == "own"
    # The sixth caption is neither rated nor a reference.
    crossed = loaded.items[0]
    assert (crossed.image, crossed.group, crossed.candidate) == (image, "crossed", CAPTIONS[SECOND][4])
    assert crossed.references == tuple(ours[:5])
    assert loaded.ratings["rating"].value[[0, 1, 11]].tolist() == [1.5, 5.0, 0.5]
    assert loaded.dataset == f"cxc-sits{suffix}"


def test_both_directions_have_the_ratings_once(tmp_path: Path) -> None:
    loaded = load(build(tmp_path), "cxc-sts", "both-directions")
    assert loaded.ratings["rating"].item.tolist() == [0, 1, 2, 3]
    assert loaded.reverse is not None
    assert loaded.reverse.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    for item, place in zip(loaded.items, loaded.reverse.tolist(), strict=True):
        other = loaded.items[place]
        assert (item.candidate, item.references) == (other.references[0], (other.candidate,))
        assert item.group == other.group
    part = open_dataset("cxc-sts@crossed", root(tmp_path))
    (crossed,) = part.load(part.selections["both-directions"])
    assert len(crossed.items) == 4
    assert crossed.reverse is not None
    assert crossed.reverse.tolist() == [2, 3, 0, 1]
    assert crossed.items[0].references == (crossed.items[2].candidate,)


# On the sample, with commands


def load_sample(name: str, items: str) -> Judgements:
    dataset = open_dataset(name, find_root("sample"))
    return dataset.load(dataset.selections[items])[0]


def test_both_directions_average_scores_before_the_correlation(capbench: Callable[..., Ran], tmp_path: Path) -> None:
    # A score that is not symmetric: the candidate's share of the letters, from a file of both directions.
    loaded = load_sample("cxc-sts", "both-directions")

    def share(candidate: str, reference: str) -> float:
        return len(candidate) ** 2 / (len(candidate) + len(reference))

    score = {item.key: share(item.candidate, item.references[0]) for item in loaded.items}
    folder = tmp_path / "items"
    capbench("data", "items", "cxc-sts/both-directions", "-o", folder)
    records = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    texts = [json.loads(line)["references"] for line in (folder / "references.jsonl").read_text().splitlines()]
    rows = ["id,asymmetric"]
    for record, (reference,) in zip(records, texts, strict=True):
        rows.append(f"{record['id']},{share(record['caption'], reference)!r}")
    file = write(tmp_path / "scores.csv", "\n".join(rows) + "\n")
    protocols = ("first-to-second/spearman", "both-directions/spearman", "both-directions/tau-b")
    flags = [flag for protocol in protocols for flag in ("-p", protocol)]
    ran = capbench("correlate", "-d", "cxc-sts", *flags, "--scores", file, "--json")
    values = {
        cell["protocol"].removeprefix("cxc-sts/"): cell["value"]
        for cell in json.loads(ran.out)["cells"]
        if not cell["group"]
    }
    human = loaded.ratings["rating"].value
    n = len(human)
    way, back = (np.array([score[item.key] for item in part]) for part in (loaded.items[:n], loaded.items[n:]))
    assert values["first-to-second/spearman"] == pytest.approx(stats.spearmanr(way, human).statistic, abs=1e-12)
    assert values["both-directions/spearman"] == pytest.approx(
        stats.spearmanr((way + back) / 2, human).statistic, abs=1e-12
    )
    assert values["both-directions/tau-b"] == pytest.approx(
        stats.kendalltau((way + back) / 2, human).statistic, abs=1e-12
    )
    halves = [stats.spearmanr(scores, human).statistic for scores in (way, back)]
    assert abs(values["both-directions/spearman"] - np.mean(halves)) > 1e-3  # not a mean of coefficients
    # Without the scores of one direction of a pair, the pair is left out as a whole.
    write(file, "\n".join(rows[:-1]) + "\n")
    left = json.loads(
        capbench("correlate", "-d", "cxc-sts", "-p", protocols[1], "--scores", file, "--allow-missing", "--json").out
    )
    (cell,) = [cell for cell in left["cells"] if not cell["group"]]
    gone = next(i for i, item in enumerate(loaded.items) if item.references == tuple(texts[-1]) and
                item.candidate == records[-1]["caption"]) % n  # fmt: skip
    keep = np.delete(np.arange(n), gone)
    assert cell["n"] == n - 1
    assert cell["value"] == pytest.approx(stats.spearmanr(((way + back) / 2)[keep], human[keep]).statistic, abs=1e-12)

"""The committed scores of the committees are the mean quantiles of their members' committed scores."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCORES = ROOT / "results" / "leaderboard" / "scores"


def committed_scores() -> dict[str, dict[str, float]]:
    """Scores by caption id and column, of all score files."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(SCORES.glob("*.csv.gz")):
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                item = row.pop("id")
                # Columns have a suffix, since they must not have the name of a metric.
                scores = {re.sub("-(8k|member)$", "", name): float(text) for name, text in row.items() if text}
                found.setdefault(item, {}).update(scores)
    return found


def quantile(score: float, knots: list[float], levels: list[float]) -> float:
    """The level at a score: linear between knots, constant outside."""
    if score <= knots[0]:
        return levels[0]
    for left, right, low, high in zip(knots, knots[1:], levels, levels[1:], strict=False):
        if score <= right:
            return low + (high - low) * (score - left) / (right - left)
    return levels[-1]


@pytest.mark.parametrize(("name", "members"), [("committee", 9), ("all-candidates", 18)])
def test_a_committee_is_the_mean_of_its_members_quantiles(name: str, members: int) -> None:
    committee = json.loads((ROOT / "results" / "committee" / f"{name}.json").read_text(encoding="utf-8"))
    assert len(committee["inputs"]) == members
    scores = {item: of_item for item, of_item in committed_scores().items() if name in of_item}
    # Two members are columns of ViLBERTScore: the second one's label names its network.
    columns = {"vilbert-bert": "vilbertscore-f-8k-bert"}
    assert len(scores) == 55_967  # Flickr8k Expert and CrowdFlower, and Composite (8k); 518 are in both of the former
    for item in sorted(scores)[::17]:
        # Members' scores are stored with six digits, and a quantile function jumps at scores that many captions have.
        bounds = []
        for half_unit in (-5.1e-6, 5.1e-6):
            rounded = [
                (entry, scores[item][columns.get(entry["label"], entry["column"])]) for entry in committee["inputs"]
            ]
            parts = [
                quantile(score + half_unit * abs(score), entry["knots"], entry["levels"]) for entry, score in rounded
            ]
            bounds.append(sum(parts) / members)
        assert bounds[0] - 1e-6 <= scores[item][name] <= bounds[1] + 1e-6, item
        assert bounds[1] - bounds[0] < 0.01

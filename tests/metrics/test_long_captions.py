from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran

LONG = " ".join(f"w{i}" for i in range(1_001))
SHORT = [{"image_id": "a", "caption": "a dog", "id": "c1"}]
CASES: list[tuple[list[dict[str, str]], dict[str, list[str]], str]] = [
    (
        [*SHORT, {"image_id": "b", "caption": LONG, "id": "c2"}],
        {"a": ["the dog"], "b": ["the cat"]},
        "image 'b', the candidate 'c2'",
    ),
    (SHORT, {"a": ["the dog", LONG]}, "image 'a', reference 2"),
]


@pytest.mark.parametrize(("candidates", "references", "place"), CASES)
def test_a_caption_too_long_for_meteor_is_named(
    candidates: Any, references: Any, place: str, tmp_path: Path, capbench: Callable[..., Ran]
) -> None:
    (tmp_path / "c.json").write_text(json.dumps(candidates))
    (tmp_path / "r.json").write_text(json.dumps(references))
    ran = capbench("score", "-m", "meteor", "--candidates", tmp_path / "c.json", "--references", tmp_path / "r.json")
    assert ran.code == 2
    *warnings, error = ran.err.splitlines()  # warnings about the captions' lengths come first
    assert error.startswith(f"error: {place}: a caption of 1,001 words is too long for METEOR ('w0 w1")
    assert all(line.startswith("warning: candidates have ") for line in warnings)
    assert len(warnings) <= 1

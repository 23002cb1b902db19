"""The results page on LEIC by submission against the numbers behind it."""

from __future__ import annotations

import numpy as np
import pytest

from capbench.core.files import read_json, read_text

pytest.importorskip("torch")

from scripts.result_tables import ROOT


def test_the_table_holds_the_numbers_that_are_kept() -> None:
    page = read_text(ROOT / "docs" / "results" / "vifidel-leic.md")
    kept = read_json(ROOT / "results" / "vifidel-leic" / "submissions.json")
    assert kept["seeds"] == [1, 2, 3]

    def shown(value: float) -> str:
        return f"{value:.3f}".removeprefix("0")

    for system, seeds in kept["leic"].items():
        scores, people = ([one[key] for one in seeds] for key in ("p machine", "p human"))
        cells = [f"{shown(np.mean(scores))} ± {shown(np.std(scores, ddof=1))}", shown(np.mean(people))]
        cells += [shown(kept["text"][name][system]) for name in ("bleu-4", "meteor", "cider")]
        assert f"| `{system}` | {' | '.join(cells)} |" in page

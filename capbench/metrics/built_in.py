"""Places in tables and columns of capbench's own metrics, so that looking up a name imports none of them.

The classes say the same (``Metric.order``, ``Metric.columns``); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BUILT_IN"]

BUILT_IN: Final[Mapping[str, tuple[int, tuple[str, ...]]]] = {
    "bleu": (10, ("bleu-1", "bleu-2", "bleu-3", "bleu-4")),
    "rouge-l": (20, ("rouge-l",)),
    "meteor": (30, ("meteor",)),
    "cider": (40, ("cider",)),
    "spice": (50, ("spice",)),
    "spider": (55, ("spider",)),
    "wmd": (60, ("wmd", "wmd-distance")),
    "bertscore": (70, ("bertscore-f", "bertscore-p", "bertscore-r")),
    "bert-tbr": (75, ("bert-tbr",)),
    "tiger": (100, ("tiger", "rrs", "wds", "grounding")),
    "reo": (
        110,
        (
            "reo-relevance",
            "reo-extraness",
            "reo-omission",
            "reo-image-relevance",
            "reo-image-extraness",
            "reo-image-omission",
        ),
    ),
    "nneval": (120, ("nneval",)),
    "faier": (130, ("faier", "faier-object", "faier-relation")),
    "vilbertscore": (140, ("vilbertscore-f", "vilbertscore-p", "vilbertscore-r")),
    "dual-encoder": (145, ("dual-encoder", "ref-dual-encoder")),
    "vifidel": (150, ("vifidel", "vifidel-ref")),
    "leic": (160, ("leic",)),
    "clipscore": (170, ("clipscore", "refclipscore")),
    "pac-s": (175, ("pac-s", "refpac-s")),
}
"""Name → (order, columns)."""

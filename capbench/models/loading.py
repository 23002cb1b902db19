"""Trained networks of whatever kind, told apart by what their files say."""

from __future__ import annotations

import os

from capbench.models.faier.files import KIND as FAIER
from capbench.models.faier.files import FaierModel, load_faier
from capbench.models.safetensors import read_metadata
from capbench.models.scan.files import GroundingModel, load_scan

__all__ = ["load_network"]


def load_network(path: str | os.PathLike[str]) -> GroundingModel | FaierModel:
    """A grounding model, or a FAIEr model. Errors are those of their own loaders; of other files, of the former's."""
    family = FAIER.partition("/")[0]
    kind = (read_metadata(path) or {}).get("kind", "")
    return load_faier(path) if kind.partition("/")[0] == family else load_scan(path)

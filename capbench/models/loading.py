"""Trained networks of whatever kind, told apart by what their files say."""

from __future__ import annotations

import os

from capbench.models.dual_encoder.files import KIND as DUAL_ENCODER
from capbench.models.dual_encoder.files import DualEncoderModel, load_dual_encoder
from capbench.models.faier.files import KIND as FAIER
from capbench.models.faier.files import FaierModel, load_faier
from capbench.models.leic import KIND as LEIC
from capbench.models.leic import LeicModel, load_leic
from capbench.models.safetensors import read_metadata
from capbench.models.scan.files import GroundingModel, load_scan
from capbench.models.vilbert.files import KIND as VILBERT
from capbench.models.vilbert.files import VilbertModel, load_vilbert

__all__ = ["load_network"]


def load_network(
    path: str | os.PathLike[str],
) -> GroundingModel | FaierModel | LeicModel | DualEncoderModel | VilbertModel:
    """A grounding model, a dual encoder, or a network of FAIEr or LEIC, or a ViLBERT in capbench's own form.

    Errors are those of their own loaders; of other files, of the first one's.
    """
    family = (read_metadata(path) or {}).get("kind", "").partition("/")[0]
    if family == FAIER.partition("/")[0]:
        return load_faier(path)
    if family == LEIC.partition("/")[0]:
        return load_leic(path)
    if family == DUAL_ENCODER.partition("/")[0]:
        return load_dual_encoder(path)
    if family == VILBERT.partition("/")[0]:
        return load_vilbert(path)
    return load_scan(path)

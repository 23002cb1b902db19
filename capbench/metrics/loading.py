"""Loading of trained networks of any kind, which their files declare."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capbench.core import plugins
from capbench.core.errors import CapbenchError, ModelError, install_plug_in
from capbench.metrics.faier.files import KIND as FAIER
from capbench.metrics.faier.files import FaierModel, load_faier
from capbench.metrics.grounding.scan_files import KIND as SCAN
from capbench.metrics.grounding.scan_files import GroundingModel, load_scan
from capbench.metrics.leic.network import KIND as LEIC
from capbench.metrics.leic.network import LeicModel, load_leic
from capbench.metrics.vilbertscore.files import KIND as VILBERT
from capbench.metrics.vilbertscore.files import VilbertModel, load_vilbert
from capbench.training.trainer import Trainer, find_trainer
from capbench.weights.files import TrainedModel, read_metadata

__all__ = ["load_network"]


def load_network(
    path: str | os.PathLike[str],
) -> GroundingModel | FaierModel | LeicModel | VilbertModel | TrainedModel[Any, Any]:
    """A grounding model, a network of FAIEr or LEIC, a ViLBERT in capbench's format, or a network of a plug-in.

    Raises the errors of the kind's loader; files of no known kind raise those of :func:`load_scan`.
    """
    family = (read_metadata(path) or {}).get("kind", "").partition("/")[0]
    if family == FAIER.partition("/")[0]:
        return load_faier(path)
    if family == LEIC.partition("/")[0]:
        return load_leic(path)
    if family == VILBERT.partition("/")[0]:
        return load_vilbert(path)
    if family not in ("", SCAN.partition("/")[0]):
        for trainer in _trainers():
            if family == trainer.kind.partition("/")[0]:
                return trainer.load(Path(path))
    missing = install_plug_in(family.removeprefix("capbench."))
    if missing is not None:
        raise ModelError(
            f"has a network of the kind {family}, which no installed package reads",
            code="missing-package",
            value=family,
            path=path,
            hint=missing,
        )
    return load_scan(path)


def _trainers() -> Iterator[Trainer]:
    """Trainers of plug-ins; one that cannot be imported does not hide the others."""
    for name in plugins.names("capbench.trainers"):
        try:
            yield find_trainer(name)
        except CapbenchError:
            continue

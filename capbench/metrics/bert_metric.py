"""The base of metrics that match the word states of a text-only BERT: a folder of weights, and document frequencies."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from capbench.errors import MetricError
from capbench.metrics.base import Metric, Resources
from capbench.metrics.needs import ModelFolder, Need, References
from capbench.models.bert import open_bert
from capbench.models.device import choose_device
from capbench.models.stored_encodings import DEFAULT_MB, StoredEncodings
from capbench.options import Choice, Count, Options, option
from capbench.progress import Progress, share_of
from capbench.records import Item
from capbench.text.matching import Frequencies

__all__ = ["BertMetric", "BertOptions"]


@dataclass(frozen=True)
class BertOptions(Options):
    """Options of every metric over a BERT."""

    encodings_mb: int = option(
        DEFAULT_MB,
        Count(),
        "megabytes of word states that the cache folder may hold, of all networks together, so that a caption is not "
        "encoded again; 0 keeps none",
        sign_as="",
    )
    device: str = option("auto", Choice("auto", "cpu", "cuda"), "where the network runs", sign_as="")


class BertMetric(Metric):
    """A metric over the word states of a BERT.

    Raises:
        SetupError: the package transformers is not installed.
        MissingFileError, ModelError: the folder is not there, or holds no such network.
    """

    needs: ClassVar[tuple[Need, ...]] = (References(), ModelFolder())
    batch_size: int = 512

    option_type = BertOptions
    options: BertOptions

    def __init__(self, resources: Resources | None = None, **options: object) -> None:
        super().__init__(resources, **options)
        assert self.resources.model is not None
        self.bert = open_bert(self.resources.model, self.layer(), choose_device(self.options.device))
        self._frequencies: Frequencies | None = None
        self._corpus = ""

    def __getstate__(self) -> dict[str, Any]:
        """As of any metric; another process keeps no word states."""
        return {**super().__getstate__(), "resources": dataclasses.replace(self.resources, cache=False)}

    def layer(self) -> int | None:
        """The layer whose states are taken; None for the one that is known to be right."""
        return None

    def documents(self, item: Item) -> Iterable[str]:
        """The texts of an item in which document frequencies are counted; by default none are needed."""
        return ()

    def facts(self) -> Mapping[str, object]:
        """The folder by the first 16 digits of its files' SHA-256, and the layer."""
        return {"model": self.bert.sha256[:16], "layer": str(self.bert.layer)}

    def prepare(self, items: Sequence[Item]) -> None:
        """Count in how many texts each word piece stands; a text of several items counts for each of them."""
        super().prepare(items)
        counts = Counter(text for item in items for text in self.documents(item))
        if not counts:
            return
        self._frequencies = Frequencies(self.bert.ids(text) for text in sorted(counts) for _ in range(counts[text]))
        digest = hashlib.sha256()
        for text in sorted(counts):
            digest.update(f"{text}\0{counts[text]}\0".encode("utf-8", "surrogatepass"))
        self._corpus = f"idf:{counts.total()}-{digest.hexdigest()[:16]}"

    def corpus_id(self) -> str:
        """The texts that document frequencies were counted in."""
        return self._corpus

    @property
    def frequencies(self) -> Frequencies:
        """Document frequencies. Raises MetricError if :meth:`prepare` was not called with items that have texts."""
        if self._frequencies is None:
            raise MetricError(f"{self.name} has counted no document frequencies", hint="Score items of a data set")
        return self._frequencies

    def states(self, items: Sequence[Item], progress: Progress) -> dict[str, NDArray[np.float32]]:
        """States of all pieces of items' candidates and references, by text; ``progress`` is told of items."""
        texts = list(dict.fromkeys(text for item in items for text in (item.candidate, *item.references)))
        step = share_of(progress, len(texts), len(items))
        with StoredEncodings(self.options.encodings_mb if self.resources.cache else 0) as stored:
            return self.bert.states(texts, step, stored)

    def check(self, items: Sequence[Item]) -> None:
        """Raise MetricError if one of the items has no references."""
        for item in items:
            if not item.references:
                raise MetricError(f"{self.name} needs references, and '{item.candidate_id or item.image}' has none")

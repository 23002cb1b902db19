"""A detector for tests of workers: one picture kills the process that sees it."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.features.fakes import FakeDetector

POISONED = "tests.cluster.poisoned:Poisoned"


class Poisoned(FakeDetector):
    """The fake detector; a picture 13 pixels wide ends its process. POISONED_PAUSE makes each picture take long."""

    @classmethod
    def open(cls, options: Any, *, weights: Any, device: str, variant: str) -> Poisoned:
        return cls(1)

    def detect(self, prepared: Any) -> Any:
        time.sleep(float(os.environ.get("POISONED_PAUSE", "0")))
        if any(entry["size"][1] == 13 for entry in prepared):
            os._exit(1)
        return super().detect(prepared)

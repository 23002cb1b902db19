"""``capbench train clip``. PyTorch is imported within the methods, so that listing the commands is fast."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from capbench import Trainer

if TYPE_CHECKING:
    from capbench_dual_encoder.files import DualEncoderModel
    from capbench_dual_encoder.training import DualEncoderTraining

__all__ = ["DualEncoderTrainer"]


class DualEncoderTrainer(Trainer):
    """Train a small dual encoder in CLIP's form on captions and region features, or resume an interrupted training.

    It is not CLIP: the metric 'dual-encoder' scores with it by CLIPScore's formulas under a name of its own. Ctrl-C
    saves a checkpoint; the same command resumes from there, also after a crash or kill -9, and ends with the same
    weights as an uninterrupted run. Paths are relative to the current folder, else to the data folder.

    Example: capbench train clip dual-encoder-flickr8k --seed 2

    Example: capbench train clip dual-encoder-flickr8k --seed 2 --evaluate test
    """

    metric: ClassVar[str] = "dual-encoder"
    kind: ClassVar[str] = "capbench.dual-encoder/1"

    def settings_type(self) -> type[DualEncoderTraining]:
        """The class of its settings."""
        from capbench_dual_encoder.training import DualEncoderTraining

        return DualEncoderTraining

    def train(self, settings: Any, run: Path, *, root: Any = None, **running: Any) -> Any:
        """Train in a run folder."""
        from capbench_dual_encoder.training import train_dual_encoder

        return train_dual_encoder(settings, run, root=root, **running)

    def load(self, path: Path, device: str = "cpu") -> DualEncoderModel:
        """Load a trained dual encoder."""
        from capbench_dual_encoder.files import load_dual_encoder

        return load_dual_encoder(path, device)

    def evaluate(
        self, settings: Any, model: DualEncoderModel, split: str, root: Any = None, *, images: int | None = None
    ) -> Any:
        """Recalls on a split."""
        from capbench.training.matching_task import evaluate_words

        return evaluate_words(settings, model, split, root, images=images)

    def describe(self, entry: Mapping[str, Any]) -> str:
        """The temperature."""
        return f"temperature {entry['temperature']:.4f}"

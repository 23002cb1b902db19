"""The parts of the sample: the scenes and captions of each data set, and the files."""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.sample.captions import describe_many
from scripts.sample.chance import stream
from scripts.sample.language import Caption
from scripts.sample.scenes import Plan, Scene, lay_out

__all__ = ["Album", "Sample"]


@dataclass
class Album:
    """The scenes and human captions of one data set, in order."""

    style: str
    per_image: int
    scenes: dict[str, Scene] = field(default_factory=dict)
    captions: dict[str, list[Caption]] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, plan: Plan, origin: str = "") -> None:
        """Lay out a plan and let people describe it; ``origin`` names the scene that it is a sibling of."""
        scene = self.scenes[name] = lay_out(name, plan)
        self.captions[name] = describe_many(stream("captions", name), scene, self.style, self.per_image)
        self.origin[name] = origin

    def texts(self, name: str) -> list[str]:
        """The captions of a scene as texts."""
        return [caption.text for caption in self.captions[name]]


@dataclass
class Sample:
    """All files of the sample by their path under its root, and its albums."""

    files: dict[str, bytes] = field(default_factory=dict)
    albums: dict[str, Album] = field(default_factory=dict)
    splits: dict[str, dict[str, list[str]]] = field(default_factory=dict)

"""What may be set about detectors, beside the kinds of options that everything has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from capbench.options import Choice, Count, Kind, Options, option

__all__ = ["NetworkOptions", "Numbers"]


@dataclass(frozen=True)
class Numbers(Kind):
    """Some finite numbers: a list, or numbers with commas between them.

    Attributes:
        count: how many there must be; 0: one or more.
        most: the largest number that fits; the smallest is 0.
    """

    count: int = 0
    most: float = math.inf

    def describe(self) -> str:
        """In words."""
        how_many = f"{self.count} numbers" if self.count else "numbers"
        limits = f"from 0 to {self.most:g}" if self.most < math.inf else "from 0"
        return f"{how_many} {limits} with commas between them"

    def example(self) -> str:
        """Numbers that fit."""
        return ",".join(["0.5"] * self.count) if self.count else "0.5,0.7"

    def read(self, value: object) -> tuple[float, ...]:
        """The numbers."""
        entries: list[Any] = value.split(",") if isinstance(value, str) else [value]
        if isinstance(value, list | tuple):
            entries = list(value)
        if any(isinstance(entry, bool) or not isinstance(entry, str | int | float) for entry in entries):
            raise ValueError
        try:
            numbers = tuple(float(entry) for entry in entries)
        except OverflowError as error:
            raise ValueError from error
        if not numbers or (self.count and len(numbers) != self.count):
            raise ValueError
        if not all(math.isfinite(number) and 0 <= number <= self.most for number in numbers):
            raise ValueError
        return numbers

    def sign(self, value: tuple[float, ...]) -> str:
        """The numbers with commas."""
        return ",".join(f"{number:g}" for number in value)


@dataclass(frozen=True)
class NetworkOptions(Options):
    """Options of every detector with a PyTorch network."""

    batch: int = option(1, Count(1), "images at once; more than 1 leaves reference mode")
    precision: str = option("float32", Choice("float32", "amp-bfloat16", "amp-float16"), "of the forward pass")

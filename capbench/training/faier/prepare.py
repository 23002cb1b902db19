"""How FAIEr's training reads captions, with their triplets, and regions, with their boxes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from capbench.models.faier.graphs import CaptionCode, caption_code, region_boxes, triplet_text
from capbench.models.faier.options import FaierOptions
from capbench.text import ptb, scene_graph
from capbench.text.scene_graph import Triplet
from capbench.text.vocabulary import Vocabulary
from capbench.training.regions import PlaceOf

__all__ = ["GraphReading", "parse_captions"]


def parse_captions(
    texts: Sequence[str],
    say: Callable[[str], None] = lambda _text: None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Parse the captions that never were parsed, into the cache that metrics read too.

    What was parsed is kept if this is interrupted, and the same call goes on from there.

    Args:
        texts: captions.
        say: told, before it begins, how many there are and how long it should take; not if there are none.
        progress: called with the numbers of captions that are done and that were to be done.

    Returns:
        How many were parsed.

    Raises:
        ToolError: SPICE's parser is not set up, or failed.
        DataError: a caption is not valid Unicode.
    """
    tokens = ptb.tokenize(texts)
    missing = scene_graph.missing(tokens)
    if missing:
        minutes = round(len(missing) / scene_graph.per_second() / 60)
        time = "a minute" if minutes < 2 else f"some {minutes} minutes"
        say(f"{len(missing):,} of {len(set(tokens)):,} captions were never parsed: SPICE's parser takes {time}, once")
        done = 0

        def step(parsed: int) -> None:
            nonlocal done
            done += parsed
            progress(done, len(missing))

        scene_graph.ensure(missing, progress=step)
    return len(missing)


class GraphReading:
    """Captions are their words and triplets, images their features and boxes.

    Args:
        options: of the network, whose sizes do not matter.
        say: told what takes its time.
        pause: called while captions are parsed; it leaves by an exception if the user has asked to stop.
    """

    def __init__(
        self,
        options: FaierOptions,
        say: Callable[[str], None] = lambda _text: None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._say, self._pause = options, say, pause
        self._triplets: dict[str, tuple[Triplet, ...]] = {}
        self.place: PlaceOf | None = None
        if options.relations and options.sees_images:
            self.place = lambda regions: region_boxes(regions.boxes, regions.width, regions.height, options)

    def more_words(self, texts: Sequence[str]) -> Iterable[str]:
        """The triplets' texts: their words are base forms, which captions need not hold."""
        self._parse(texts)
        return [triplet_text(triplet) for text in texts for triplet in self._triplets.get(text, ())]

    def encode(self, text: str, vocabulary: Vocabulary) -> CaptionCode:
        """Numbers of words and triplets."""
        if text not in self._triplets:
            self._parse([text])
        return caption_code(text, self._triplets.get(text, ()), vocabulary, self._options)

    def _parse(self, texts: Sequence[str]) -> None:
        if not self._options.relations:
            return
        tenths = 0

        def progress(done: int, all_: int) -> None:
            nonlocal tenths
            if 10 * done // all_ > tenths:
                tenths = 10 * done // all_
                self._say(f"parsed {done:,} of {all_:,} captions")
            self._pause()

        parse_captions(texts, self._say, progress)
        distinct = list(dict.fromkeys(texts))
        graphs = scene_graph.parse(distinct)
        self._triplets.update((text, graph.triplets) for text, graph in zip(distinct, graphs, strict=True))

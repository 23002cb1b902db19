"""The interface of pycocoevalcap, with capbench's engines: the same numbers without Java, except for SPICE's parser.

::

    from capbench.coco import Bleu, Cider, COCOEvalCap, Meteor, PTBTokenizer, Rouge, Spice

Scorers take texts whose words are separated by spaces, as :class:`PTBTokenizer` returns them. Numbers equal those of
pycocoevalcap 1.2, with three exceptions, where the original misplaces a value: its tokeniser loses empty captions at
the end, its Meteor reads ``|||`` in a reference as the end of this reference, and its COCOEvalCap assigns SPICE's
values, which are sorted by image, to images in another order.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from capbench.core.errors import CapbenchWarning, DataError, ToolError, check_choice
from capbench.core.records import FloatArray
from capbench.text import ptb
from capbench.text.meteor.scores import meteor_corpus, meteor_scores, meteor_statistics
from capbench.text.ngrams import Corpus, bleu, bleu_counts, cider_d, rouge_l
from capbench.text.spice import scene_graph
from capbench.text.spice.matching import CATEGORIES, f_scores, match_counts

Texts = Mapping[Any, list[str]]  # captions of each image
_ORDERS = range(1, 5)  # of n-grams


def _pairs(gts: Texts, res: Texts) -> tuple[list[str], list[list[str]]]:
    """Candidates and references in the order of ``gts``; each image has one candidate and one or more references."""
    if not gts and not res:
        raise DataError("there are no captions: gts and res are empty", code="missing-caption", value=0)
    for image in gts.keys() | res.keys():
        candidates, references = res.get(image), gts.get(image)
        is_single = isinstance(candidates, list) and len(candidates) == 1
        if not (is_single and isinstance(references, list) and references):
            message = f"image {image!r} has the candidates {candidates} and the references {references}"
            hint = "Pass gts={image: [reference, …]} and res={image: [candidate]} with the same images"
            raise DataError(message, code="wrong-type", value=image, hint=hint)
    return [res[image][0] for image in gts], list(gts.values())


class _Scorer:
    """Base class of the scorers."""

    _method: ClassVar[str]

    def method(self) -> str:
        """The metric's name."""
        return self._method


class Bleu(_Scorer):
    """BLEU-1 to BLEU-n (Papineni et al., 2002); n is at most 4."""

    _method = "Bleu"

    def __init__(self, n: int = 4) -> None:
        check_choice("n", n, _ORDERS)
        self._n = n

    def compute_score(self, gts: Texts, res: Texts, verbose: int = 0) -> tuple[list[float], list[list[float]]]:
        """BLEU-1 to BLEU-n of the corpus, and for each n the score of every image. ``verbose`` has no effect."""
        counts = bleu_counts(Corpus(*_pairs(gts, res)))[0]
        corpus, images = bleu(counts.sum(axis=0)), bleu(counts)
        return corpus[: self._n].tolist(), images.T[: self._n].tolist()


class Rouge(_Scorer):
    """ROUGE-L (Lin, 2004)."""

    _method = "Rouge"

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, FloatArray]:
        """The mean, and (images,) scores."""
        scores = rouge_l(Corpus(*_pairs(gts, res)))[0]
        return float(np.mean(scores)), scores


class Cider(_Scorer):
    """CIDEr-D (Vedantam et al., 2015); a document is the set of references of one image. n is at most 4."""

    _method = "CIDEr"

    def __init__(self, test: object = None, refs: object = None, n: int = 4, sigma: float = 6.0) -> None:
        check_choice("n", n, _ORDERS)
        self._n, self._sigma = n, sigma

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, FloatArray]:
        """The mean, and (images,) scores."""
        scores = cider_d(Corpus(*_pairs(gts, res)), orders=self._n, sigma=self._sigma)[0]
        return float(np.mean(scores)), scores


class Meteor(_Scorer):
    """METEOR 1.5 (Denkowski and Lavie, 2014) for English."""

    _method = "METEOR"

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, list[float]]:
        """The score of the corpus, and the score of every image."""
        candidates, references = _pairs(gts, res)
        statistics = meteor_statistics([c.replace("|||", "").replace("  ", " ") for c in candidates], references)
        return meteor_corpus(statistics), meteor_scores(statistics).tolist()


class Spice(_Scorer):
    """SPICE (Anderson et al., 2016). New captions are parsed, which requires 'capbench doctor --install spice'."""

    _method = "SPICE"

    def compute_score(self, gts: Texts, res: Texts) -> tuple[float, list[dict[str, dict[str, float]]]]:
        """The mean F, and for each image, in the order of sorted ids, the scores and counts of every category."""
        images = sorted(gts)
        candidates, references = _pairs({i: gts[i] for i in images}, res)
        graphs = scene_graph.tuples([*candidates, *chain.from_iterable(references)])
        parsed = [next(graphs) for _ in candidates]
        pairs = zip(parsed, references, strict=True)
        counts = np.concatenate([match_counts([graph], [next(graphs) for _ in group])[0] for graph, group in pairs])
        scores: list[dict[str, dict[str, float]]] = [{} for _ in images]
        for place, category in enumerate(CATEGORIES):
            numbers = zip(*f_scores(counts, category), counts[:, 3 * place : 3 * place + 3], scores, strict=True)
            for precision, recall, f, (tp, fp, fn), of_image in numbers:
                values = {"pr": precision, "re": recall, "f": f, "fn": fn, "numImages": 1, "fp": fp, "tp": tp}
                of_image[category] = {key: float(value) for key, value in values.items()}
        return float(np.mean([of_image["All"]["f"] for of_image in scores])), scores


class PTBTokenizer:
    """Penn Treebank tokens in lower case, without punctuation."""

    def tokenize(self, captions_for_image: Mapping[Any, Sequence[Mapping[str, Any]]]) -> dict[Any, list[str]]:
        """Tokens, joined by spaces, of each image's captions (``{"caption": text}``)."""
        texts = [entry["caption"] for captions in captions_for_image.values() for entry in captions]
        tokens = iter(ptb.tokenize([text.replace("\n", " ") for text in texts]))
        return {image: [next(tokens) for _ in captions] for image, captions in captions_for_image.items() if captions}


class COCOEvalCap:
    """All scores of COCO's caption evaluation; ``coco`` has the references, ``coco.loadRes`` gives the candidates."""

    def __init__(self, coco: Any, cocoRes: Any) -> None:  # noqa: N803
        self.eval: dict[str, float] = {}  # score of the corpus by metric (Bleu_1, METEOR, ROUGE_L, CIDEr, SPICE)
        self.imgToEval: dict[Hashable, dict[str, Any]] = {}  # for each image its scores by metric, and ``image_id``
        self.evalImgs: list[dict[str, Any]] = []  # the values of ``imgToEval``
        self.coco, self.cocoRes = coco, cocoRes
        self.params: dict[str, Any] = {"image_id": coco.getImgIds()}  # the images to evaluate

    def evaluate(self) -> None:
        """Compute all scores and print those of the corpus; without SPICE's parser all but SPICE, with a warning."""
        images = self.params["image_id"]
        tokenizer = PTBTokenizer()
        gts = tokenizer.tokenize({image: self.coco.imgToAnns[image] for image in images})
        res = tokenizer.tokenize({image: self.cocoRes.imgToAnns[image] for image in images})
        self.imgToEval = {image: {"image_id": image} for image in gts}
        for order, scores in enumerate(zip(*Bleu().compute_score(gts, res), strict=True), 1):
            self._add(f"Bleu_{order}", scores, gts)
        self._add("METEOR", Meteor().compute_score(gts, res), gts)
        self._add("ROUGE_L", Rouge().compute_score(gts, res), gts)
        self._add("CIDEr", Cider().compute_score(gts, res), gts)
        try:
            self._add("SPICE", Spice().compute_score(gts, res), sorted(gts))
        except ToolError as error:
            warnings.warn(f"SPICE is not computed: {error}", CapbenchWarning, stacklevel=2)
        self.evalImgs = list(self.imgToEval.values())

    def _add(self, metric: str, scores: tuple[float, Iterable[Any]], images: Iterable[Hashable]) -> None:
        self.eval[metric] = scores[0]
        for image, score in zip(images, scores[1], strict=True):
            self.imgToEval[image][metric] = score
        print(f"{metric}: {scores[0]:0.3f}")

"""FAIEr's network against its equations written out plainly, and what it says of what it cannot do."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from capbench.core.errors import FeatureError, UsageError
from capbench.core.options import Choice
from capbench.metrics.faier import network as matching
from capbench.metrics.faier.graphs import (
    NO_REFERENCE,
    VARIANTS,
    CaptionCode,
    FaierOptions,
    Graph,
    Nodes,
    caption_code,
    collate,
    region_boxes,
    triplet_text,
)
from capbench.metrics.faier.network import Faier
from capbench.text.vocabulary import END, SPECIAL, START, UNKNOWN, Vocabulary
from tests.errors import raises
from tests.metrics.faier.reference import PlainFaier, Text

pytestmark = pytest.mark.usefixtures("one_thread")

SIZES: dict[str, Any] = {"vocabulary_size": 30, "word_dim": 6, "embed_dim": 8, "image_dim": 7}

OPEN_POINTS: list[dict[str, Any]] = [
    {"similarity": "cosine"},
    {"z": "tanh"},
    {"z": "tanh", "similarity": "cosine"},
    {"image_bias": True, "relation_bias": True, "union_bias": True},
    {"directions": "sum"},
    {"directions": "concat"},
    {"reference_encoder": "separate"},
    {"triplet_encoder": "shared"},
    {"triplet_encoder": "shared", "reference_encoder": "separate", "triplet_embedding": "separate"},
    {"triplet_embedding": "separate"},
    {"triplet_state": "last"},
    {"levels": "shared"},
    {"empty_references": "skip"},
    {"ends": "none"},
    {"ends": "counted"},
]


class Case:
    """Random images, references and candidates, with what is rare among them.

    Image 0 has one region, image 1 has "." as its reference, image 2 references of which the first has no triplets and
    image 3 one without words; candidate 0 has one word, candidate 1 no triplets, candidate 2 no words.
    """

    def __init__(self, seed: int, options: FaierOptions) -> None:
        rng = np.random.default_rng(seed)
        self.options = options
        self.regions = [1, *rng.integers(2, 6, 3).tolist()]
        self.features = [rng.normal(size=(n, options.image_dim)) for n in self.regions]
        self.boxes = [rng.uniform(size=(n, 4)) for n in self.regions]

        def numbers(low: int, high: int) -> tuple[int, ...]:
            return tuple(rng.integers(4, options.vocabulary_size, rng.integers(low, high)).tolist())

        def text(words: tuple[int, ...], triplets: int) -> Text:
            return Text((START, *words, END), tuple(numbers(1, 5) for _ in range(triplets)))

        dot = text((5,), 0)
        wordless = text((), 0)
        full = [text(numbers(1, 9), int(rng.integers(1, 4))) for _ in range(5)]
        self.texts = [text(numbers(1, 2), 2), text(numbers(2, 9), 0), wordless, *full, dot, text(numbers(2, 9), 0)]
        self.references = [[3, 4, 5], [8], [9, 3], [2, 6, 7, 4]]
        if options.ends == "none":  # a text of no words at all then cannot be read
            self.references[3] = [6, 7, 4]
        self.network = Faier(options, torch.Generator().manual_seed(seed)).double().eval()
        with torch.no_grad():
            for name, weight in self.network.named_parameters():  # biases begin at 0: move them
                if "bias" in name or name.startswith(("merge", "offset")):
                    weight.copy_(torch.from_numpy(rng.normal(size=tuple(weight.shape))))

    def batch(self) -> tuple[Any, Any, Any]:
        """Features and boxes padded with what must not matter, and numbers of regions."""
        most = max(self.regions)
        features = np.full((len(self.regions), most, self.options.image_dim), 9.0)
        boxes = np.full((len(self.regions), most, 4), -7.0)
        for row, n in enumerate(self.regions):
            features[row, :n], boxes[row, :n] = self.features[row], self.boxes[row]
        return torch.from_numpy(features), torch.from_numpy(boxes), torch.tensor(self.regions)

    def graphs(self) -> tuple[Graph | None, Graph, Graph, Any]:
        codes = [self.code(text) for text in self.texts]
        captions = self.network.encode_captions(collate(codes))
        as_references = self.network.encode_captions(collate(codes), references=self.options.reads_references)
        most = max(map(len, self.references))
        places = torch.tensor([[*of_image, *[0] * (most - len(of_image))] for of_image in self.references])
        counts = torch.tensor([len(of_image) for of_image in self.references])
        images = self.network.encode_images(*self.batch()) if self.options.sees_images else None
        return images, captions, as_references[places], counts

    def code(self, text: Text) -> CaptionCode:
        return CaptionCode(text.words if self.options.ends != "none" else text.words[1:-1], text.triplets)

    def expected(self) -> dict[str, np.ndarray]:
        plain = PlainFaier(self.options, {k: v.numpy() for k, v in self.network.state_dict().items()})
        answers = [
            [plain.score(features, boxes, [self.texts[place] for place in of_image], text) for text in self.texts]
            for features, boxes, of_image in zip(self.features, self.boxes, self.references, strict=True)
        ]
        names = ("objects", "relations", "total")
        return {name: np.array([[getattr(a, name) for a in row] for row in answers]) for name in names}


@pytest.mark.parametrize(
    ("variant", "changes"),
    [
        *((variant, {}) for variant in VARIANTS),
        *(("faier", changes) for changes in OPEN_POINTS),
        ("fier", {"z": "tanh", "image_bias": True, "relation_bias": True}),
        ("aier", {"reference_encoder": "separate", "similarity": "cosine"}),
        ("fier+aier", {"similarity": "cosine", "z": "tanh"}),
        ("faier-object", {"union_bias": True, "levels": "shared"}),
    ],
)
def test_every_pair_scores_what_the_equations_give(variant: str, changes: dict[str, Any]) -> None:
    for seed in range(2):
        case = Case(seed, FaierOptions(**SIZES, variant=variant, **changes))
        with torch.no_grad():
            images, captions, references, counts = case.graphs()
            union = case.network.fuse(images, references, counts)
            scores = case.network.scores(union, captions)
        expected = case.expected()
        np.testing.assert_allclose(scores.objects.numpy(), expected["objects"], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(scores.total.numpy(), expected["total"], rtol=1e-9, atol=1e-11)
        if case.options.relations:
            assert scores.relations is not None
            np.testing.assert_allclose(scores.relations.numpy(), expected["relations"], rtol=1e-9, atol=1e-11)
        else:
            assert scores.relations is None


def drawn_options(rng: np.random.Generator, variant: str) -> FaierOptions:
    """Sizes and open points, each drawn among all that it may be."""
    chosen: dict[str, Any] = {
        "vocabulary_size": int(rng.integers(10, 60)),
        "word_dim": int(rng.integers(1, 12)),
        "embed_dim": 2 * int(rng.integers(1, 8)),
        "image_dim": int(rng.integers(1, 12)),
        "image_scale": float(rng.choice([1.0, 0.3])),
    }
    for declared in FaierOptions.declared():
        if declared.name not in (*chosen, "variant", "boxes"):
            choices = declared.kind.choices if isinstance(declared.kind, Choice) else (False, True)
            chosen[declared.name] = choices[int(rng.integers(len(choices)))]
    return FaierOptions(**chosen, variant=variant)


@pytest.mark.parametrize("variant", VARIANTS)
def test_drawn_networks_score_what_the_equations_give_for_every_number_of_references(variant: str) -> None:
    for seed in range(3):
        case = Case(seed + 10, drawn_options(np.random.default_rng((seed, VARIANTS.index(variant))), variant))
        # Of each image the first, the first two (if there are so many), and all.
        counts = [[min(most, len(of_image)) for of_image in case.references] for most in (1, 2, 9)]
        with torch.no_grad():
            images, captions, references, _ = case.graphs()
            unions = case.network.fuse_prefixes(images, references, torch.tensor(counts))
            whole = list(case.references)
            owners = torch.arange(len(case.references)).repeat_interleave(len(case.texts))
            every = torch.arange(len(case.texts)).repeat(len(case.references))
            for of_images, union in zip(counts, unions, strict=True):
                case.references = [texts[:n] for texts, n in zip(whole, of_images, strict=True)]
                expected = case.expected()
                scores = case.network.scores(union, captions)
                paired = case.network.paired_scores(union, captions[every], owners)
                for name in ("objects", "relations", "total") if case.options.relations else ("objects", "total"):
                    matrix = getattr(scores, name).numpy()
                    np.testing.assert_allclose(matrix, expected[name], rtol=1e-8, atol=1e-10, err_msg=str(case.options))
                    np.testing.assert_allclose(getattr(paired, name).numpy(), matrix.ravel(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pairs_score_as_in_the_matrix_of_all(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(3, FaierOptions(**SIZES, variant=variant))
    pairs = list(itertools.product(range(4), range(len(case.texts))))
    with torch.no_grad():
        images, captions, references, counts = case.graphs()
        union = case.network.fuse(images, references, counts)
        whole = case.network.scores(union, captions)
        monkeypatch.setattr(matching, "_AT_ONCE", 300)  # many small pieces
        in_pieces = case.network.scores(union, captions)
        of_pairs = case.network.paired_scores(
            union, captions[torch.tensor([c for _, c in pairs])], torch.tensor([i for i, _ in pairs])
        )
    np.testing.assert_allclose(in_pieces.total.numpy(), whole.total.numpy(), rtol=1e-12)
    np.testing.assert_allclose(of_pairs.total.numpy(), whole.total.numpy().ravel(), rtol=1e-12)
    np.testing.assert_allclose(of_pairs.objects.numpy(), whole.objects.numpy().ravel(), rtol=1e-12)


@pytest.mark.parametrize("variant", ["faier", "aier", "fier", "fier+aier"])
@pytest.mark.parametrize("changes", [{}, {"empty_references": "skip", "similarity": "cosine"}])
def test_gradients_are_those_of_small_steps(variant: str, changes: dict[str, Any]) -> None:
    case = Case(4, FaierOptions(**SIZES, variant=variant, **changes))
    weighting = torch.from_numpy(np.random.default_rng(1).normal(size=(4, len(case.texts))))

    def loss() -> torch.Tensor:
        images, captions, references, counts = case.graphs()
        return (case.network.scores(case.network.fuse(images, references, counts), captions).total * weighting).sum()

    weights = dict(case.network.named_parameters())
    gradients = torch.autograd.grad(loss(), list(weights.values()))
    rng = np.random.default_rng(2)
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        assert torch.isfinite(gradient).all(), name
        direction = torch.from_numpy(rng.normal(size=tuple(weight.shape)))
        before = weight.detach().clone()
        sides = []
        for step in (1e-6, -1e-6, 0.0):
            with torch.no_grad():
                weight.copy_(before + step * direction)
                sides.append(float(loss()))
        numeric = (sides[0] - sides[1]) / 2e-6
        assert float((gradient * direction).sum()) == pytest.approx(numeric, rel=1e-4, abs=1e-6), name


def test_captions_without_any_word_score_nothing() -> None:
    for variant in VARIANTS:
        case = Case(6, FaierOptions(**SIZES, variant=variant))
        wordless = [CaptionCode((START, END))] * 2
        with torch.no_grad():
            captions = case.network.encode_captions(collate(wordless))
            images = case.network.encode_images(*case.batch()) if case.options.sees_images else None
            references = captions[torch.zeros(4, 1, dtype=torch.int64)]
            union = case.network.fuse(images, references, torch.ones(4, dtype=torch.int64))
            scores = case.network.scores(union, captions)
            bias = float(case.network.merge.bias) if case.options.parts == "fier+aier" else 0.0
        assert scores.total.tolist() == [[pytest.approx(bias)] * 2] * 4


def test_an_image_without_references_is_rejected() -> None:
    case = Case(5, FaierOptions(**SIZES))
    images, _, references, _ = case.graphs()
    with raises(UsageError, "missing-references"):
        case.network.fuse(images, references, torch.tensor([1, 0, 1, 1]))


def test_missing_inputs_of_a_variant_are_errors() -> None:
    features = torch.zeros(1, 2, 7)
    with raises(UsageError, "wrong-features", value="faier"):
        Faier(FaierOptions(**SIZES)).encode_images(features, None)
    with raises(UsageError, "unsupported", value="aier"):
        Faier(FaierOptions(**SIZES, variant="aier")).encode_images(features, None)
    network = Faier(FaierOptions(**SIZES, variant="faier-object"))
    nodes = Nodes(torch.zeros(1, 1, 1, 8), torch.ones(1, 1, 1, dtype=torch.bool))
    with raises(UsageError, "missing-features", value="faier-object"):
        network.fuse(None, Graph(nodes, None), torch.tensor([1]))


@pytest.mark.parametrize(
    ("changes", "code", "value"),
    [
        ({"variant": "faier-rel"}, "wrong-value", "faier-rel"),
        ({"embed_dim": 0}, "wrong-value", 0),
        ({"embed_dim": 7, "directions": "concat"}, "conflict", 7),
    ],
)
def test_invalid_options_are_rejected(changes: dict[str, Any], code: str, value: object) -> None:
    with raises(UsageError, code, value=value):
        FaierOptions(**{**SIZES, **changes})


def test_the_published_sizes_are_the_defaults() -> None:
    options = FaierOptions(vocabulary_size=10)
    assert (options.image_dim, options.embed_dim, options.word_dim) == (2048, 512, 300)
    assert (options.similarity, options.z, options.variant) == ("dot", "linear", "faier")


def test_triplets_are_read_as_subject_relation_object() -> None:
    vocabulary = Vocabulary((*SPECIAL, "kid", "stand", "in", "grass", "two", "kids", "."))
    options = FaierOptions(vocabulary_size=11)
    triplet = ("kid", "stand in", "grass")
    assert triplet_text(triplet) == "kid stand in grass"
    code = caption_code("Two kids.", [triplet, ("kid", "hold", "grass")], vocabulary, options)
    assert code == CaptionCode((START, 8, 9, 10, END), ((4, 5, 6, 7), (4, UNKNOWN, 7)))
    assert caption_code("Two kids.", [triplet], vocabulary, replace(options, ends="none")).words == (8, 9, 10)
    assert caption_code("Two kids.", [triplet], vocabulary, replace(options, variant="fier-object")).triplets == ()
    assert caption_code(NO_REFERENCE, [], vocabulary, options) == CaptionCode((START, 10, END))


def test_a_triplet_of_several_captions_stands_once_in_a_batch() -> None:
    batch = collate([CaptionCode((4, 5), ((6, 7), (8,))), CaptionCode((4,)), CaptionCode((), ((8,), (6, 7), (9,)))])
    assert batch.triplet_ids.tolist() == [[6, 7], [8, 0], [9, 0]]
    assert batch.triplets_of.tolist() == [[0, 1, -1], [-1, -1, -1], [1, 0, 2]]
    assert batch.lengths.tolist() == [2, 1, 0]


def test_boxes_are_shares_of_the_sides_or_pixels() -> None:
    boxes = np.array([[0, 10, 50, 20]], dtype=np.float32)
    options = FaierOptions(vocabulary_size=5)
    np.testing.assert_allclose(region_boxes(boxes, 100, 40, options), [[0, 0.25, 0.5, 0.5]])
    np.testing.assert_array_equal(region_boxes(boxes, 100, 40, replace(options, boxes="pixels")), boxes)
    with raises(FeatureError, "wrong-features"):
        region_boxes(None, 100, 40, options)


def test_a_scale_of_features_is_the_same_as_scaled_features() -> None:
    options: dict[str, Any] = {
        "vocabulary_size": 9,
        "word_dim": 4,
        "embed_dim": 6,
        "image_dim": 5,
        "variant": "fier-object",
    }
    plain = Faier(FaierOptions(**options), torch.Generator().manual_seed(1)).eval()
    scaled = Faier(FaierOptions(**options, image_scale=0.2), torch.Generator().manual_seed(1)).eval()
    features = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(2))
    expected = plain.encode_images(features * 0.2, None).objects.vectors
    assert torch.allclose(scaled.encode_images(features, None).objects.vectors, expected)
    assert not torch.allclose(plain.encode_images(features, None).objects.vectors, expected)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.errors import raises

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from capbench.core.errors import MissingFileError, ModelError  # noqa: E402
from capbench.core.records import Item  # noqa: E402
from capbench.metrics.clip import ClipMetric, ClipScore, PacScore, harmonic_mean  # noqa: E402
from capbench.metrics.needs import Resources  # noqa: E402
from capbench.metrics.scoring import complete  # noqa: E402
from tests.metrics.clip import plain_clip as plain  # noqa: E402

STATE = plain.random_state()
ITEMS = (
    Item("one", "the dog", ("a cat", "the dog running on")),
    Item("one", "A  photo &amp; café's 42!", ("the cat", "the the the")),
    Item("two", "a word that is longer than the network reads", ("dog", "a word that is much longer than it is")),
    Item("three", "Ünïcode … 🐕", ("on",)),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    plain.write_checkpoint(folder / "pacs" / "clip_ViT.pth", STATE)
    plain.write_pictures(folder / "pictures")
    return folder


def made(world: Path, kind: type[ClipMetric] = ClipScore, weights: Path | None = None, **options: Any) -> ClipMetric:
    source = weights or world / "pacs" / "clip_ViT.pth"
    resources = complete(Resources(model=str(source), images=str(world / "pictures")))
    return kind(resources, **options)


def scored(metric: ClipMetric, items: Sequence[Item] = ITEMS) -> dict[str, list[float]]:
    metric.prepare(items)
    return {name: values.tolist() for name, values in metric.scores(metric.statistics(items, lambda _: None)).items()}


def expected(world: Path, w: float, prefix: str = "A photo depicts ", **how: Any) -> list[tuple[float, float]]:
    rows = []
    for item in ITEMS:
        picture = next((world / "pictures").glob(f"{item.image}.*"))
        texts = [plain.text_vector(prefix + text, STATE, **how) for text in (item.candidate, *item.references)]
        rows.append(plain.scores(plain.image_vector(picture, STATE, **how), texts[0], texts[1:], w))
    return rows


@pytest.mark.parametrize(
    ("kind", "w", "options"),
    [(ClipScore, 2.5, {}), (PacScore, 2.0, {}), (ClipScore, 100.0, {"scale": 100, "prefix": False})],
)
def test_all_columns_are_those_of_plain_code(
    world: Path, kind: type[ClipMetric], w: float, options: dict[str, Any]
) -> None:
    columns = scored(made(world, kind, **options))
    assert list(columns) == list(kind.columns)
    wanted = expected(world, w, "" if options else "A photo depicts ")
    np.testing.assert_allclose(np.transpose(list(columns.values())), wanted, rtol=1e-5, atol=1e-5)


def test_pictures_of_every_kind_are_those_of_plain_code(world: Path, tmp_path: Path) -> None:
    from PIL import Image

    folder = tmp_path / "pictures"
    folder.mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    colour = Image.fromarray(noise)
    turned = Image.Exif()
    turned[0x0112] = 6  # a quarter turn, which the released code does not look at
    for mode, name in {
        "L": "grey.jpg",
        "CMYK": "print.jpg",
        "P": "palette.png",
        "1": "bits.png",
        "LA": "alpha.png",
    }.items():
        colour.convert(mode).save(folder / name)
    colour.save(folder / "turned.jpg", exif=turned)
    colour.save(folder / "moving.gif", save_all=True, append_images=[colour.rotate(180)])
    colour.resize((1, 300)).save(folder / "thin.png")
    Image.fromarray(noise[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
    items = [Item(path.stem, "the dog", ("a cat",)) for path in sorted(folder.iterdir())]
    resources = complete(Resources(model=str(world / "pacs" / "clip_ViT.pth"), images=str(folder)))
    columns = np.transpose(list(scored(ClipScore(resources), items).values()))
    texts = [plain.text_vector(f"A photo depicts {text}", STATE) for text in ("the dog", "a cat")]
    pictures = [plain.image_vector(path, STATE) for path in sorted(folder.iterdir())]
    wanted = [plain.scores(picture, texts[0], texts[1:], 2.5) for picture in pictures]
    np.testing.assert_allclose(columns, wanted, atol=1e-5)
    assert len(np.unique(columns[:, 0].round(6))) > 6


def test_a_folder_of_transformers_has_its_networks_vectors(world: Path, tmp_path: Path) -> None:
    network = plain.write_transformers(tmp_path)
    clip = made(world, weights=tmp_path).clip
    pieces = clip.pieces(["the dog on a cat"])
    assert list(pieces[0]) == plain.pieces("the dog on a cat")
    pixels = np.stack([plain.pixels(next((world / "pictures").glob("one.*")))]).astype(np.float32)
    with torch.no_grad():
        text = network.text_projection(network.text_model(torch.tensor(pieces)).last_hidden_state[:, -1])
        image = network.visual_projection(network.vision_model(torch.from_numpy(pixels)).pooler_output)
    np.testing.assert_allclose(clip.encode_texts(pieces), text, atol=1e-5)
    np.testing.assert_allclose(clip.encode_pictures(list(pixels)), image, atol=1e-5)


def test_a_folder_of_open_clip_says_its_activation_and_its_heads(world: Path, tmp_path: Path) -> None:
    folder = tmp_path / "open_clip"
    folder.mkdir()
    torch.save(STATE, folder / "open_clip_pytorch_model.bin")
    plain.write_merges(folder)
    config = '{"model_cfg": {"text_cfg": {"heads": 2}, "vision_cfg": {"width": 64, "head_width": 32}}}'
    (folder / "open_clip_config.json").write_text(config)
    columns = scored(made(world, weights=folder))
    wanted = expected(world, 2.5, heads=2, quick=False)
    np.testing.assert_allclose(np.transpose(list(columns.values())), wanted, atol=1e-5)
    assert "activation:gelu" in made(world, weights=folder).signature()


def test_long_captions_are_cut_and_counted_and_keep_their_end(world: Path) -> None:
    metric = made(world)
    text = "A photo depicts " + ITEMS[2].candidate
    (pieces,) = metric.clip.pieces([text])
    assert list(pieces) == plain.pieces(text)
    assert len(pieces) == plain.CONTEXT
    assert pieces[-1] == plain.vocabulary()["<|endoftext|>"]
    (line,) = metric.warnings("mine", ITEMS)
    texts = {text for item in ITEMS for text in (item.candidate, *item.references)}
    cut = sum(len(plain.pieces("A photo depicts " + text, 999)) > plain.CONTEXT for text in texts)
    assert line.startswith(f"{cut} of {len(texts)} captions have more than 20 word pieces")
    assert metric.warnings("mine", [Item("one", "on", ())]) == ()


def test_negative_cosines_count_as_zero() -> None:
    metric_rows = np.array([[1.0, -0.5, 0.5], [1.0, 0.5, -0.5], [2.0, -0.1, -0.1], [0.0, 0.4, 0.0]])
    columns = ClipScore.scores(
        type("M", (), {"options": ClipScore.option_type(), "columns": ("a", "b")})(), metric_rows
    )
    np.testing.assert_allclose(columns["a"], [0, 1.25, 0, 1])
    np.testing.assert_allclose(columns["b"], [0, 0, 0, np.nan])
    np.testing.assert_allclose(harmonic_mean(np.array([1.0, 0.0]), np.array([0.5, 0.0])), [2 / 3, 0])


def test_matrix_is_the_scores_of_every_pair(world: Path) -> None:
    metric = made(world)
    items = [Item("one", "the dog", ("on",)), Item("two", "a cat on", ("the cat", "a dog"))]
    matrices = metric.matrix(items, lambda _: None)
    scores = scored(metric, [replace(of, candidate=item.candidate) for of in items for item in items])
    for column in metric.columns:
        np.testing.assert_allclose(matrices[column].ravel(), scores[column], atol=1e-12)


def _without(start: str) -> dict[str, Any]:
    return {name: tensor for name, tensor in STATE.items() if not name.startswith(start)}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "shape": ({**STATE, "text_projection": torch.zeros(5, 24)}, "wrong-shape", "shape"),
    "heads": ({**STATE, "ln_final.weight": torch.ones(200)}, "wrong-shape", "3 attention heads"),
    "nan": ({**STATE, "visual.proj": torch.full((64, 24), float("nan"))}, "not-a-number", "NaN"),
    "no layers": (_without("transformer"), "missing-key", "'text_model.encoder.layers.0"),
    "resnet": ({**STATE, "visual.layer1.0.conv1.weight": torch.ones(1)}, "unsupported", "ResNet"),
    "more": ({**STATE, "head.weight": torch.ones(2)}, "unknown-key", "head.weight"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_weights_are_one_line(name: str, world: Path, tmp_path: Path) -> None:
    state, code, wanted = BAD[name]
    path = plain.write_checkpoint(tmp_path / "bad.pth", STATE)
    torch.save(state, path)
    with raises(ModelError, code, path=path) as caught:
        made(world, PacScore, path)
    assert wanted in caught.value.message
    assert "\n" not in str(caught.value)


def test_a_tokeniser_must_be_there_and_fit(world: Path, tmp_path: Path) -> None:
    lone = plain.write_checkpoint(tmp_path / "lone.pth", STATE, merges=False)
    with raises(MissingFileError, "missing-file", path=lone.parent):
        made(world, PacScore, lone)
    assert scored(made(world, PacScore, lone, tokenizer=str(world / "pacs"))) == scored(made(world, PacScore))
    small = {**STATE, "token_embedding.weight": STATE["token_embedding.weight"][:100]}
    smaller = plain.write_checkpoint(tmp_path / "small" / "small.pth", small)
    with raises(ModelError, "mismatch", path=smaller, value=526):
        made(world, PacScore, smaller)
    (tmp_path / "tokenizer.json").write_text("{}")
    with raises(ModelError, "wrong-format", path=tmp_path / "tokenizer.json"):
        made(world, PacScore, lone)

"""Every reader of a trained network takes a damaged file or refuses it with one clear line.

Bytes are changed and cut; sizes, vocabulary, facts and the header are given values of other kinds. Whatever is read is
asked for what lists and signatures tell of it.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from capbench.metrics.faier.graphs import FaierOptions
from capbench.metrics.faier.network import Faier, load_faier, save_faier, stored_options
from capbench.metrics.grounding.scan import Scan, ScanOptions
from capbench.metrics.grounding.scan_files import load_scan, save_scan
from capbench.metrics.leic.network import Leic, LeicOptions, load_leic, save_leic
from capbench.metrics.nneval.network import SHAPES, read_nneval
from capbench.metrics.vilbertscore.files import load_vilbert, save_vilbert
from capbench.metrics.vilbertscore.network import Vilbert, VilbertOptions
from capbench.text.vocabulary import Vocabulary
from capbench.text.word_pieces import WordPieces
from capbench_dual_encoder.files import load_dual_encoder, save_dual_encoder
from capbench_dual_encoder.network import DualEncoder, DualEncoderOptions
from tests.features.test_damaged_files import SIZES, damaged, reads

Draw = Any
WORDS = Vocabulary.build(["a dog runs", "a cat sits"], 1)
PIECES = WordPieces(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dog", "##s"))
SIZE: dict[str, Any] = {"vocabulary_size": len(WORDS), "image_dim": 5, "word_dim": 3}
VILBERT = VilbertOptions(
    vocabulary_size=len(PIECES.pieces), positions=12, tasks=0, text_dim=4, text_layers=2, text_heads=2, text_inner=4,
    feature_dim=4, image_dim=4, image_layers=1, image_heads=2, image_inner=4, common_dim=4, common_heads=2,
    connections=1, region_outputs=4,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2, 1 << 20, 10**18, 10**30, -0.5, 1.5, "", "x", "\x00", "F64", [], {}, [1, 2], [[]], {"a": 1},
)  # fmt: skip
TEXTS = ("", "[", "x", "null", "5", "NaN", "[" * 50_000, "9" * 5000, '{"a": ' * 50_000)


def _faier(path: Path) -> None:
    options = FaierOptions(**SIZE, embed_dim=4, variant="fier+aier")
    save_faier(path, Faier(options, torch.Generator().manual_seed(1)), WORDS, {"features": "ab" * 8})


def _leic(path: Path) -> None:
    save_leic(path, Leic(LeicOptions(**SIZE, state_dim=4, hidden_dim=4)), WORDS, {"features": "ab" * 8})


def _dual_encoder(path: Path) -> None:
    save_dual_encoder(path, DualEncoder(DualEncoderOptions(**SIZE, embed_dim=4, hidden_dim=4)), WORDS, {})


def _scan(path: Path) -> None:
    save_scan(path, Scan(ScanOptions(**SIZE, embed_dim=4), torch.Generator().manual_seed(1)), WORDS, {})


def _vilbert(path: Path) -> None:
    save_vilbert(path, Vilbert(VILBERT, torch.Generator().manual_seed(1)), PIECES, {})


NETWORKS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "faier": (_faier, load_faier),
    "leic": (_leic, load_leic),
    "dual encoder": (_dual_encoder, load_dual_encoder),
    "scan": (_scan, load_scan),
    "vilbert": (_vilbert, load_vilbert),
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values stand in nested JSON."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    return [path, *(place for key, below in inner for place in _places(below, (*path, key)))]


@st.composite
def changed(draw: Draw, value: Any) -> Any:
    """JSON in which a value is another one, or is gone."""
    place: tuple[Any, ...] = ("whole", *draw(st.sampled_from(_places(value))))
    last = place[-1]
    whole = {"whole": copy.deepcopy(value)}
    holder: Any = whole
    for key in place[:-1]:
        holder = holder[key]
    if draw(st.booleans()) or last == "whole":
        holder[last] = draw(st.sampled_from(VALUES))
    else:
        del holder[last]
    return whole["whole"]


@st.composite
def networks(draw: Draw, data: bytes) -> bytes:
    """A safetensors file of capbench's own with other bytes, another header, or other metadata."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata: dict[str, Any] = header["__metadata__"]
    what = draw(st.sampled_from(("bytes", "body", "header", "number", "text", "metadata", "metadata", "metadata")))
    key = draw(st.sampled_from(sorted(set(metadata) - {"format", "kind"})))
    if what == "bytes":
        return bytes(draw(damaged(data)))
    if what == "body":
        body = draw(damaged(body))
    elif what == "header":
        header = draw(changed(header))
    elif what == "number":
        place = 4 * draw(st.integers(0, len(body) // 4 - 1))
        number = np.float32(draw(st.sampled_from((np.nan, np.inf, 3e38)))).tobytes()
        body = body[:place] + number + body[place + 4 :]
    elif what == "text":
        metadata[key] = draw(st.sampled_from(TEXTS))
    else:
        metadata[key] = json.dumps(draw(changed(json.loads(metadata[key]))))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_network_in_any_file_is_read_or_refused(kind: str, size: settings, tmp_path: Path) -> None:
    save, load = NETWORKS[kind]
    path = tmp_path / "m.safetensors"
    save(path)
    sound = path.read_bytes()
    outcomes = {"ok": 0, "refused": 0}

    def read() -> None:
        stored_options(path)
        model = load(path)
        for told in ("summary", "signature_parts"):
            if hasattr(model, told):
                json.dumps(getattr(model, told)())

    @size
    @given(networks(sound))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        outcomes[reads(read)] += 1

    assert reads(read) == "ok"
    check()
    print(kind, outcomes)
    assert outcomes["refused"]


@pytest.mark.parametrize("size", SIZES)
def test_weights_of_nneval_in_any_file_are_read_or_refused(size: settings, tmp_path: Path) -> None:
    arrays = {name: np.full(shape, 0.1, np.float32) for name, shape in SHAPES.items()}
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    path = tmp_path / "m.npz"
    outcomes = {"ok": 0, "refused": 0}

    @size
    @given(damaged(stream.getvalue()))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        outcomes[reads(lambda: read_nneval(path))] += 1

    check()
    print("nneval", outcomes)
    assert outcomes["refused"]

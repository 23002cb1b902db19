"""CLIP in plain code, written from the paper and the released layout of weights: nothing of capbench or transformers.

Also tiny random weights in that layout, and the files that a user has of them.
"""

from __future__ import annotations

import gzip
import html
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

WIDTH, LAYERS, EMBEDDING, PATCH, PICTURE, CONTEXT = 64, 2, 24, 8, 32, 20
MERGES = ["t h", "th e</w>", "d o", "do g</w>", "c a", "ca t</w>", "p h", "o t", "i n", "in g</w>", "o n</w>", "a n"]
State = Mapping[str, torch.Tensor]


def byte_letters() -> dict[int, str]:
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def vocabulary() -> dict[str, int]:
    letters = list(byte_letters().values())
    pieces = letters + [letter + "</w>" for letter in letters] + [merge.replace(" ", "") for merge in MERGES]
    return {piece: n for n, piece in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}


def pieces(text: str, longest: int = CONTEXT) -> list[int]:
    """Greedy byte-pair merging in the order of ranks; too long ones end with the end token."""
    ranks = {tuple(merge.split()): rank for rank, merge in enumerate(MERGES)}
    numbers, of_byte = vocabulary(), byte_letters()
    text = re.sub(r"\s+", " ", html.unescape(html.unescape(text))).strip().lower()
    ids = [numbers["<|startoftext|>"]]
    for word in re.findall(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|(?:[^\s\w]|_)+", text):
        split = [of_byte[byte] for byte in word.encode()]
        split[-1] += "</w>"
        while len(split) > 1:
            pairs = [(ranks.get((a, b), math.inf), n) for n, (a, b) in enumerate(itertools.pairwise(split))]
            rank, place = min(pairs)
            if rank == math.inf:
                break
            split[place : place + 2] = [split[place] + split[place + 1]]
        ids += [numbers[piece] for piece in split]
    ids.append(numbers["<|endoftext|>"])
    return ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]


def random_state(seed: int = 0) -> dict[str, torch.Tensor]:
    """Random weights in the layout of the released code."""
    draw = torch.Generator().manual_seed(seed)

    def some(*shape: int, scale: float = 0.3) -> torch.Tensor:
        return torch.randn(*shape, generator=draw) * scale

    state = {
        "token_embedding.weight": some(len(vocabulary()), WIDTH),
        "positional_embedding": some(CONTEXT, WIDTH),
        "text_projection": some(WIDTH, EMBEDDING),
        "logit_scale": torch.tensor(2.7),
        "visual.class_embedding": some(WIDTH),
        "visual.positional_embedding": some((PICTURE // PATCH) ** 2 + 1, WIDTH),
        "visual.conv1.weight": some(WIDTH, 3, PATCH, PATCH),
        "visual.proj": some(WIDTH, EMBEDDING),
    }
    for norm in ("ln_final", "visual.ln_pre", "visual.ln_post"):
        state |= {f"{norm}.weight": 1 + some(WIDTH), f"{norm}.bias": some(WIDTH)}
    for tower in ("transformer", "visual.transformer"):
        for n in range(LAYERS):
            block = f"{tower}.resblocks.{n}"
            for norm in ("ln_1", "ln_2"):
                state |= {f"{block}.{norm}.weight": 1 + some(WIDTH), f"{block}.{norm}.bias": some(WIDTH)}
            state |= {f"{block}.attn.in_proj_weight": some(3 * WIDTH, WIDTH), f"{block}.attn.in_proj_bias": some(192)}
            state |= {f"{block}.attn.out_proj.weight": some(WIDTH, WIDTH), f"{block}.attn.out_proj.bias": some(WIDTH)}
            state |= {f"{block}.mlp.c_fc.weight": some(4 * WIDTH, WIDTH), f"{block}.mlp.c_fc.bias": some(4 * WIDTH)}
            state |= {f"{block}.mlp.c_proj.weight": some(WIDTH, 4 * WIDTH), f"{block}.mlp.c_proj.bias": some(WIDTH)}
    return state


def _norm(x: torch.Tensor, state: State, name: str) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    deviation = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(deviation + 1e-5) * state[f"{name}.weight"] + state[f"{name}.bias"]


def _blocks(x: torch.Tensor, state: State, tower: str, causal: bool, heads: int, quick: bool) -> torch.Tensor:
    size = x.shape[-1] // heads
    for n in range(LAYERS):
        block = f"{tower}.resblocks.{n}"
        normal = _norm(x, state, f"{block}.ln_1")
        mixed = normal @ state[f"{block}.attn.in_proj_weight"].T + state[f"{block}.attn.in_proj_bias"]
        queries, keys, values = mixed.chunk(3, dim=-1)
        heads_out = []
        for head in range(heads):
            columns = slice(head * size, (head + 1) * size)
            fit = queries[:, columns] @ keys[:, columns].T / math.sqrt(size)
            if causal:
                fit = fit.masked_fill(torch.ones_like(fit).triu(1).bool(), -math.inf)
            heads_out.append(torch.softmax(fit, -1) @ values[:, columns])
        attended = torch.cat(heads_out, -1)
        x = x + attended @ state[f"{block}.attn.out_proj.weight"].T + state[f"{block}.attn.out_proj.bias"]
        inner = _norm(x, state, f"{block}.ln_2") @ state[f"{block}.mlp.c_fc.weight"].T + state[f"{block}.mlp.c_fc.bias"]
        bent = inner * torch.sigmoid(1.702 * inner) if quick else torch.nn.functional.gelu(inner)
        x = x + bent @ state[f"{block}.mlp.c_proj.weight"].T + state[f"{block}.mlp.c_proj.bias"]
    return x


def text_vector(text: str, state: State, heads: int = 1, quick: bool = True) -> NDArray[np.float64]:
    """The vector of a text that has its prefix already."""
    state = {name: tensor.double() for name, tensor in state.items()}
    ids = pieces(text)
    x = state["token_embedding.weight"][ids] + state["positional_embedding"][: len(ids)]
    x = _norm(_blocks(x, state, "transformer", True, heads, quick), state, "ln_final")
    vector: NDArray[np.float64] = (x[-1] @ state["text_projection"]).numpy()
    return vector


def pixels(path: Path) -> NDArray[np.float64]:
    """(3, PICTURE, PICTURE): shorter side resized, middle cut out, RGB, normalised."""
    with Image.open(path) as image:
        width, height = image.size
        short = min(width, height)
        resized = image.resize((int(PICTURE * width / short), int(PICTURE * height / short)), Image.Resampling.BICUBIC)
    left, top = round((resized.width - PICTURE) / 2), round((resized.height - PICTURE) / 2)
    middle = resized.crop((left, top, left + PICTURE, top + PICTURE)).convert("RGB")
    values = np.asarray(middle, dtype=np.float64) / 255
    normal = (values - [0.48145466, 0.4578275, 0.40821073]) / [0.26862954, 0.26130258, 0.27577711]
    return np.moveaxis(normal, 2, 0)


def image_vector(path: Path, state: State, heads: int = 1, quick: bool = True) -> NDArray[np.float64]:
    """The vector of a picture."""
    state = {name: tensor.double() for name, tensor in state.items()}
    values, kernel = torch.from_numpy(pixels(path)), state["visual.conv1.weight"].reshape(WIDTH, -1)
    patches = [
        kernel @ values[:, y : y + PATCH, x : x + PATCH].reshape(-1)
        for y in range(0, PICTURE, PATCH)
        for x in range(0, PICTURE, PATCH)
    ]
    x = torch.stack([state["visual.class_embedding"], *patches]) + state["visual.positional_embedding"]
    x = _blocks(_norm(x, state, "visual.ln_pre"), state, "visual.transformer", False, heads, quick)
    vector: NDArray[np.float64] = (_norm(x[:1], state, "visual.ln_post")[0] @ state["visual.proj"]).numpy()
    return vector


def scores(
    image: NDArray[np.float64], candidate: NDArray[np.float64], references: Sequence[NDArray[np.float64]], w: float
) -> tuple[float, float]:
    """Both columns of one item."""

    def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    alone = w * max(cosine(image, candidate), 0)
    text = max(max(cosine(candidate, reference) for reference in references), 0)
    return alone, (2 * alone * text / (alone + text) if alone + text else 0.0)


def write_merges(folder: Path) -> None:
    """The released code's own file of merges."""
    lines = "\n".join(["#version: made up", *MERGES]) + "\n"
    (folder / "bpe_simple_vocab_16e6.txt.gz").write_bytes(gzip.compress(lines.encode()))


def write_checkpoint(path: Path, state: State, merges: bool = True) -> Path:
    """A checkpoint as PAC-S publishes one, its word pieces beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": dict(state), "epoch": 3}, path)
    if merges:
        write_merges(path.parent)
    return path


def write_transformers(folder: Path) -> Any:
    """A folder as ``save_pretrained`` writes it, with random weights; returns the network."""
    import transformers

    layers = {"num_hidden_layers": LAYERS, "num_attention_heads": 2, "hidden_size": WIDTH, "hidden_act": "gelu"}
    layers["intermediate_size"] = 4 * WIDTH
    text = {**layers, "vocab_size": len(vocabulary()), "max_position_embeddings": CONTEXT}
    vision = {**layers, "image_size": PICTURE, "patch_size": PATCH}
    torch.manual_seed(1)
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=EMBEDDING)
    network = transformers.CLIPModel(config).eval()
    network.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocabulary()))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES]) + "\n")
    return network


def write_pictures(folder: Path, names: Sequence[str] = ("one", "two", "three")) -> Path:
    """Pictures of several modes and shapes, one of which says that it is to be turned."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    for n, name in enumerate(names):
        values = rng.integers(0, 256, (40 + 13 * n, 61 - 9 * n, 3), dtype=np.uint8)
        image = Image.fromarray(values)
        if n == 1:
            image.convert("L").save(folder / f"{name}.png")
        else:
            exif = Image.Exif()
            exif[0x0112] = 6
            image.save(folder / f"{name}.jpg", exif=exif)
    return folder

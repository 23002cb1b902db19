"""One training step of SCAN: capbench's attention beside the ways that suggest themselves.

A step is the encoding of a batch, the similarities of all its images and captions, symmetric InfoNCE, the backward
pass and Adam. Compared are a loop over captions (as the released code does it), a padded batch that forms every
context, capbench's similarities, and these with bfloat16 products. The loops encode words with ``nn.GRU``; all start
from the same weights and see the same batch, in which captions have the lengths of a caption corpus and words Zipf's
frequencies. Told are the shortest wall-clock and processor time of a step, by part, and how far loss and gradients are
from those of the first way; float32 ways must agree.

Example: python scripts/bench/scan_training_step.py --threads 2
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from capbench.core.machine import keep_freed_memory
from capbench.metrics.grounding.scan import FastScan, Scan, ScanOptions, l2norm
from capbench.training.matching_task import info_nce

Similarities = Callable[[Scan, Tensor, Tensor, Tensor], Tensor]
WAYS = ("loop", "contexts", "capbench", "capbench-bfloat16")


def batch(options: ScanOptions, size: int, regions: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Regions (b, n, d), word numbers (b, m) and lengths (b,), the first and last word included."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (torch.randn(size, generator=generator) * 3.8 + 13.8).round().clamp(6, 36).long()
    frequency = 1 / torch.arange(2, options.vocabulary_size - 2)
    words = torch.multinomial(frequency.float(), size * int(lengths.max()), True, generator=generator) + 4
    ids = words.view(size, -1)
    ids[:, 0] = 1
    ids[torch.arange(size), lengths - 1] = 2
    ids[torch.arange(ids.shape[1])[None, :] >= lengths[:, None]] = 0
    return torch.randn(size, regions, options.image_dim, generator=generator), ids, lengths


def packed(network: Scan, ids: Tensor, lengths: Tensor) -> Tensor:
    """Captions encoded by ``nn.GRU`` itself."""
    text = network.text
    rows = pack_padded_sequence(text.embed(ids), lengths, batch_first=True, enforce_sorted=False)
    states = pad_packed_sequence(text.rnn(rows)[0], batch_first=True)[0]
    forward, backward = states.chunk(2, dim=-1)
    return l2norm((forward + backward) / 2)


def loop(network: Scan, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
    """One caption at a time against all images."""
    columns = []
    for caption, length in zip(captions, lengths.tolist(), strict=True):
        columns.append(contexts(network, images, caption[None, :length], torch.tensor([length])))
    return torch.cat(columns, dim=1)


def contexts(network: Scan, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
    """All captions at once, padded and masked, every context formed (t2i, clipped_l2norm, LogSumExp)."""
    options = network.options
    is_word = torch.arange(captions.shape[1])[None, :] < lengths[:, None]  # (b, m)
    s = torch.einsum("and,bmd->abnm", images, captions)
    x = l2norm(functional.leaky_relu(s, 0.1))  # padded words are zero vectors, and count nothing in the norm
    attention = (options.lambda_softmax * x).softmax(dim=2)
    context = torch.einsum("abnm,and->abmd", attention, images)
    cosine = functional.cosine_similarity(captions[None], context, dim=-1)
    scaled = (options.lambda_lse * cosine).masked_fill(~is_word, -torch.inf)
    return scaled.logsumexp(-1) / options.lambda_lse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--regions", type=int, default=25)
    parser.add_argument("--embed", type=int, default=512)
    parser.add_argument("--features", type=int, default=256, help="components of a region feature")
    parser.add_argument("--words", type=int, default=3000, help="size of the vocabulary")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(asked.threads)
    keep_freed_memory()  # as 'capbench train scan' does
    options = ScanOptions(asked.words, embed_dim=asked.embed, image_dim=asked.features)
    start = FastScan(options, torch.Generator().manual_seed(asked.seed)).train()
    regions, ids, lengths = batch(options, asked.batch, asked.regions, asked.seed)
    table: dict[str, dict[str, float]] = {}
    wanted: tuple[float, Tensor] | None = None
    for way in asked.ways:
        network = copy.deepcopy(start)
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        row: dict[str, float] = {}
        for repeat in range(asked.repeats):
            optimiser.zero_grad()
            marks = [(time.perf_counter(), time.process_time())]
            images = network.encode_images(regions)
            if way.startswith("capbench"):
                captions = network.encode_captions(ids, lengths)
                # Cut here, so that the parts of the backward pass can be timed apart.
                left, right = images.detach().requires_grad_(), captions.detach().requires_grad_()
                marks.append((time.perf_counter(), time.process_time()))
                products = "bfloat16" if way.endswith("bfloat16") else "float32"
                scores = network.similarities(left, right, lengths, products)  # type: ignore[arg-type]
            else:
                captions = packed(network, ids, lengths)
                left, right = images.detach().requires_grad_(), captions.detach().requires_grad_()
                marks.append((time.perf_counter(), time.process_time()))
                scores = (loop if way == "loop" else contexts)(network, left, right, lengths)
            loss = info_nce(scores)
            loss.backward()  # type: ignore[no-untyped-call]
            marks.append((time.perf_counter(), time.process_time()))
            # The encoders' share: the gradient of this sum is that of the loss.
            assert left.grad is not None
            assert right.grad is not None
            shares = (images * left.grad).sum() + (captions * right.grad).sum()
            shares.backward()  # type: ignore[no-untyped-call]
            marks.append((time.perf_counter(), time.process_time()))
            if repeat == 0:
                gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
                wanted = wanted or (loss.item(), gradient.clone())
                row["loss"] = loss.item()
                row["loss_difference"] = abs(loss.item() - wanted[0])
                row["gradient_difference"] = float((gradient - wanted[1]).norm() / wanted[1].norm())
            optimiser.step()
            marks.append((time.perf_counter(), time.process_time()))
            for clock, name in enumerate(("wall_s", "cpu_s")):
                t = [mark[clock] for mark in marks]
                for label, seconds in (
                    (name, t[4] - t[0]),
                    (f"similarities_{name}", t[2] - t[1]),
                    (f"encoders_{name}", t[1] - t[0] + t[3] - t[2]),
                ):
                    row[label] = min(row.get(label, seconds), seconds)
        table[way] = row
        if "bfloat16" not in f"{way} {asked.ways[0]}" and row["gradient_difference"] > 1e-3:
            raise SystemExit(f"{way} has other gradients than {asked.ways[0]}: {row['gradient_difference']:.0e}")
    if asked.json:
        print(json.dumps({"torch": torch.__version__, "threads": asked.threads, "steps": table}, indent=2))
        return 0
    print(f"# torch {torch.__version__}, {platform.machine()}, {asked.threads} threads; {int(lengths.sum())} words")
    print("way                 step s  ratio   cpu s | similarities s   cpu s | encoders s   cpu s | loss ±    grad ±")
    slowest = table.get("loop", next(iter(table.values())))["wall_s"]
    for way, row in table.items():
        print(
            f"{way:18} {row['wall_s']:7.3f} {slowest / row['wall_s']:6.1f} {row['cpu_s']:7.3f} |"
            f" {row['similarities_wall_s']:14.3f} {row['similarities_cpu_s']:7.3f} |"
            f" {row['encoders_wall_s']:10.3f} {row['encoders_cpu_s']:7.3f} |"
            f" {row['loss_difference']:.0e} {row['gradient_difference']:9.0e}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A training step of SCAN (encoders, similarities, InfoNCE, backward pass), compared with two usual ways.

The loop over captions is that of the released code; the padded batch forms every context. All start from the same
weights and batch; captions have the lengths of a caption corpus and words Zipf's frequencies. Gradients must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capbench.core.machine import keep_freed_memory
from capbench.metrics.scan.network import Scan, ScanOptions, l2norm
from capbench.training.matching import info_nce
from scripts.bench.common import Row, Settings, Work, between

_EMBED, _FEATURES, _WORDS, _REGIONS = 512, 256, 3000, 25


def batch(options: ScanOptions, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Regions (b, n, d), word numbers (b, m) and lengths (b,), the first and last word included."""
    generator = torch.Generator().manual_seed(0)
    lengths = (torch.randn(size, generator=generator) * 3.8 + 13.8).round().clamp(6, 36).long()
    frequency = 1 / torch.arange(2, options.vocabulary_size - 2)
    words = torch.multinomial(frequency.float(), size * int(lengths.max()), True, generator=generator) + 4
    ids = words.view(size, -1)
    ids[:, 0] = 1
    ids[torch.arange(size), lengths - 1] = 2
    ids[torch.arange(ids.shape[1])[None, :] >= lengths[:, None]] = 0
    return torch.randn(size, _REGIONS, options.image_dim, generator=generator), ids, lengths


def loop_scores(network: Scan, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
    """One caption at a time against all images."""
    columns = [
        padded_scores(network, images, caption[None, :length], torch.tensor([length]))
        for caption, length in zip(captions, lengths.tolist(), strict=True)
    ]
    return torch.cat(columns, dim=1)


def padded_scores(network: Scan, images: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
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


def ours(size: int) -> Work:
    """capbench's step."""
    return _step(size, lambda network, images, captions, n: network.similarities(images, captions, n))


def loop(size: int) -> Work:
    """The step with a loop over captions."""
    return _step(size, loop_scores)


def padded(size: int) -> Work:
    """The step with a padded batch."""
    return _step(size, padded_scores)


def _step(size: int, scores: Callable[[Scan, Tensor, Tensor, Tensor], Tensor]) -> Work:
    """A step whose result is the gradient, divided by its norm."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as 'capbench train scan' does
    options = ScanOptions(_WORDS, embed_dim=_EMBED, image_dim=_FEATURES)
    network = Scan(options, torch.Generator().manual_seed(0)).train()
    regions, ids, lengths = batch(options, size)

    def work() -> object:
        network.zero_grad()
        words = network.encode_captions(ids, lengths)
        info_nce(scores(network, network.encode_images(regions), words, lengths)).backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
        return np.asarray(gradient / gradient.norm())

    return work


def measure(settings: Settings) -> Iterator[Row]:
    """Both comparisons."""
    size = settings.pick(30, 100)
    for title, peer in (("loop over captions", loop), ("padded batch", padded)):
        what = f"SCAN, gradients of {size} captions"
        yield between(what, title, ours, peer, size, repeats=settings.repeats, tolerance=1e-3, inner=3)

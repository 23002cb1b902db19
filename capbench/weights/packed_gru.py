"""A gated recurrent unit over sequences of different lengths, for the CPU (Cho et al. 2014, in the form of ``nn.GRU``).

``nn.GRU`` on packed sequences is exact, but its backward pass on a CPU accumulates the weights' gradient at every time
step and fills a buffer of the size of the whole batch each time. Here both directions advance together, and the
gradient of each weight is one matrix product over all steps. Products of the inputs are computed once for each distinct
input row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Packing:
    """Positions of the words of captions packed by time: all first words, then all second words, …

    Longer captions come first, so that the captions that continue at a time step are the first rows of the step before.

    Args:
        lengths: number of words of each caption, each 1 or more.

    Attributes:
        batch_sizes: number of captions with a word at each time step.
        captions, steps: (T,) int64 caption and word position of each packed row.
        reverse: for each packed row, the row of the word at the same distance from the caption's end; its own inverse.
        before: for each packed row from the second step on, the row one step earlier.
    """

    def __init__(self, lengths: Tensor) -> None:
        lengths = lengths.cpu()
        order = torch.argsort(lengths, descending=True, stable=True)
        longest = int(lengths.max())
        running = lengths[order][None, :] > torch.arange(longest)[:, None]  # (steps, captions)
        self.batch_sizes: list[int] = running.sum(1).tolist()
        self.steps, rank = running.nonzero(as_tuple=True)
        self.captions = order[rank]
        start = torch.cumsum(torch.tensor([0, *self.batch_sizes[:-1]]), 0)
        self.reverse = start[lengths[self.captions] - 1 - self.steps] + rank
        later = self.steps > 0
        self.before = start[self.steps[later] - 1] + rank[later]
        self._start, self._rank = start, torch.argsort(order)

    def row(self, captions: Tensor, steps: Tensor) -> Tensor:
        """The packed rows of words, given by caption and position."""
        return self._start[steps] + self._rank[captions]


def packed_gru(network: nn.GRU, rows: Tensor, which: Tensor, packing: Packing) -> Tensor:
    """States of ``network`` for packed captions.

    Args:
        network: any number of layers and directions, without dropout.
        rows: (u, input) distinct input rows.
        which: (T,) the input row of each packed word.
        packing: packing of the captions.

    Returns:
        (T, D), or (T, 2D) with the backward states after the forward ones.
    """
    directions = 2 if network.bidirectional else 1
    for layer in range(network.num_layers):
        gates, recurrent, biases = [], [], []
        for suffix in ("", "_reverse")[:directions]:
            place = packing.reverse if suffix else None
            product = nn.functional.linear(
                rows, getattr(network, f"weight_ih_l{layer}{suffix}"), getattr(network, f"bias_ih_l{layer}{suffix}")
            )
            index = which if place is None else which[place]
            gates.append(product.index_select(0, index))
            recurrent.append(getattr(network, f"weight_hh_l{layer}{suffix}"))
            biases.append(getattr(network, f"bias_hh_l{layer}{suffix}"))
        states = _Recurrence.apply(torch.stack(gates), torch.stack(recurrent), torch.stack(biases), packing)
        parts = [states[0]] if directions == 1 else [states[0], states[1].index_select(0, packing.reverse)]
        rows = parts[0] if directions == 1 else torch.cat(parts, dim=-1)
        which = torch.arange(len(rows))
    return rows


def packed_captions(
    network: nn.GRU, embedding: nn.Embedding, ids: Tensor, lengths: Tensor, dropout: float = 0.0
) -> tuple[Tensor, Packing]:
    """States of a GRU over the word vectors of padded captions.

    Args:
        network: as for :func:`packed_gru`.
        embedding: word vectors.
        ids: (b, m) int64 word numbers; those after a caption's end are ignored.
        lengths: (b,), each 1 or more.
        dropout: share of the word vectors' components that are dropped.

    Returns:
        (T, D) or (T, 2D) states, and their packing.
    """
    packing = Packing(lengths)
    packed_ids = ids[packing.captions, packing.steps]  # (T,) words of all captions
    if dropout:
        rows = nn.functional.dropout(embedding(packed_ids), dropout)
        which = torch.arange(len(packed_ids))
    else:  # each distinct word is multiplied once
        distinct, which = torch.unique(packed_ids, return_inverse=True)
        rows = embedding(distinct)
    return packed_gru(network, rows, which, packing), packing


def recurrence(gates: Tensor, weights: Tensor, biases: Tensor, packing: Packing) -> Tensor:
    """The recurrent half of ``nn.GRU``, given the products of its inputs.

    Args:
        gates: (T, 3D) products of packed inputs with ``weight_ih``, plus ``bias_ih``.
        weights: (3D, D), ``weight_hh``.
        biases: (3D,), ``bias_hh``.
        packing: packing of the sequences; initial states are zero.

    Returns:
        (T, D) states.
    """
    states: Tensor = _Recurrence.apply(gates[None], weights[None], biases[None], packing)[0]
    return states


class _Recurrence(torch.autograd.Function):
    """Gate inputs (d, T, 3D), weights (d, 3D, D), biases (d, 3D) → states (d, T, D), for d directions."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, weights: Tensor, biases: Tensor, packing: Packing) -> Tensor:
        d, total, size = gates.shape[0], gates.shape[1], weights.shape[2]
        states = gates.new_empty(d, total, size)
        # Saved for the backward pass: reset and update gates, new state, and the factor of the reset gate.
        reset_update, new, inner = (
            gates.new_empty(d, total, 2 * size),
            torch.empty_like(states),
            torch.empty_like(states),
        )
        turned, bias = weights.mT, biases[:, None]
        at, before = 0, 0
        for number in packing.batch_sizes:
            here = slice(at, at + number)
            if at == 0:  # the first state is zero
                product, old = bias.expand(d, number, 3 * size), None
            else:
                old = states[:, before : before + number]
                product = torch.baddbmm(bias, old, turned)
            ru, n, hidden = reset_update[:, here], new[:, here], inner[:, here]
            torch.add(gates[:, here, : 2 * size], product[..., : 2 * size], out=ru).sigmoid_()
            hidden.copy_(product[..., 2 * size :])
            torch.addcmul(gates[:, here, 2 * size :], ru[..., :size], hidden, out=n).tanh_()
            # h = (1 − z)·n + z·old
            z = ru[..., size:]
            if old is None:
                torch.addcmul(n, z, n, value=-1, out=states[:, here])
            else:
                torch.lerp(n, old, z, out=states[:, here])
            at, before = at + number, at
        ctx.save_for_backward(weights, states, reset_update, new, inner)
        ctx.packing = packing
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weights, states, reset_update, new, inner = ctx.saved_tensors
        packing: Packing = ctx.packing
        d, total, size = states.shape
        of_gates = states.new_empty(d, total, 3 * size)
        of_products = states.new_empty(d, total, 3 * size)
        carried: Tensor | None = None
        at = total
        sizes = packing.batch_sizes
        for step in range(len(sizes) - 1, -1, -1):
            number = sizes[step]
            at -= number
            here = slice(at, at + number)
            h = gradient[:, here].clone()
            if carried is not None:
                h[:, : carried.shape[1]] += carried
            n, ru = new[:, here], reset_update[:, here]
            r, z = ru[..., :size], ru[..., size:]
            before = at - sizes[step - 1] if step else 0
            # h = n + z·(old − n)
            difference = -n if step == 0 else states[:, before : before + number] - n
            dn = (h - h * z).mul_(1 - n * n)
            out = of_gates[:, here]
            out[..., :size] = dn * inner[:, here]
            torch.mul(h, difference, out=out[..., size : 2 * size])
            out[..., : 2 * size].mul_(ru - ru * ru)
            out[..., 2 * size :] = dn
            through = of_products[:, here]
            through[..., : 2 * size] = out[..., : 2 * size]
            torch.mul(dn, r, out=through[..., 2 * size :])
            if step:
                carried = torch.baddbmm(h.mul_(z), through, weights)
        first = sizes[0]
        old = states[:, packing.before]
        of_weights = torch.bmm(of_products[:, first:].mT, old)
        return of_gates, of_weights, of_products.sum(1), None

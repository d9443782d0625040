"""The host's side of the solver: memory, launches, and the exchange between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from losspool.kernels import pooling
from losspool.kernels.launch import Exponents, ceil_div, exponents, float64_bits, power_of_two, run
from losspool.kernels.narrowing import BINS, LO, SLOTS, VALID

PASSES = 4
BLOCK, TILES = 1024, 16
"""A program reads chunks of TILES blocks of BLOCK losses: 16,384 losses unless a pool is very large."""
_MOST_PROGRAMS = 2048  # of one pool: each adds up the sums of all of them
_MOST_POOLS = 1024  # solved at once: each takes 33 KB of histograms
_BINS, _LO, _VALID = BINS.value, LO.value, VALID.value
_RECORD = _BINS + SLOTS.value

Exchange = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps counts and sums of this rank to the counts added over all ranks, and the stack of all ranks' sums."""


class Sums(NamedTuple):
    """What the programs of a pass summed in float64, (R, P) each. With several ranks, P is 1 after the exchange."""

    below: Tensor  # S(lo) relative to lo
    higher: Tensor  # Σ_{ℓ > hi} ℓ; the last pass only


def solve(
    losses: Tensor,
    mask: Tensor | None,
    p: float,
    m: float,
    share: bool,
    *,
    from_logits: bool,
    exchange: Exchange | None = None,
    ranks: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Solve every pool of contiguous ``losses`` (R, N), where ``mask`` is True.

    Return the loss, the table of the pools (R, COLUMNS), and the factor of the weights in the
    gradient. Losses from logits carry marks for void pixels and bad labels; otherwise a negative
    loss is refused.
    """
    pools = losses.shape[0]
    table = losses.new_empty(pools, pooling.COLUMNS.value, dtype=torch.float64)
    for begin in range(0, pools, _MOST_POOLS):
        rows = slice(begin, begin + _MOST_POOLS)
        part = None if mask is None else mask[rows]
        _solve_pools(losses[rows], part, table[rows], exponents(p), m, share, not from_logits, exchange)
    loss = losses.new_empty((), dtype=torch.float32)
    factor = losses.new_empty(1, dtype=torch.float64)
    constants = {"FROM_LOGITS": from_logits, "BLOCK": min(power_of_two(max(pools, 16)), 1024)}
    run(pooling.average, 1, table, loss, factor, pools, ranks, asserting=True, **constants)
    return loss, table, factor


def _solve_pools(
    losses: Tensor,
    mask: Tensor | None,
    table: Tensor,
    exponent: Exponents,
    m: float,
    share: bool,
    refuse_negative: bool,
    exchange: Exchange | None,
) -> None:
    pools, size = losses.shape
    block = min(BLOCK, power_of_two(max(size, 16)))
    chunks = max(ceil_div(size, block * TILES * _MOST_PROGRAMS), 1)
    tiles = TILES if chunks > 1 else min(TILES, max(ceil_div(size, block), 1))
    programs = max(ceil_div(size, block * tiles * chunks), 1)
    records = losses.new_zeros(PASSES, pools, _RECORD, dtype=torch.int64)
    sums = losses.new_empty(PASSES + 1, pools, programs, dtype=torch.float64)
    numbers = (exponent.q, exponent.q_low, float64_bits(m))
    fixed = {"SHARE": share, "UNIFORM": exponent.uniform}
    before = Sums(sums[0], sums[-1])
    for index in range(PASSES):
        mine = Sums(sums[index], sums[-1])
        run(
            pooling.count_pass,
            programs * pools,
            losses,
            mask,
            records[max(index - 1, 0)],
            records[index],
            records[0],
            before.below,
            mine.below,
            mine.higher,
            size,
            programs,
            before.below.shape[1],
            chunks,
            tiles,
            *numbers,
            FIRST=index == 0,
            LAST=index == PASSES - 1,
            MASKED=mask is not None,
            REFUSE_NEGATIVE=refuse_negative and index == 0,
            BLOCK=block,
            P2=_slots(before.below),
            warps=8,
            **fixed,
        )
        before = mine if exchange is None else _add_up(records[index], mine, exchange, last=index == PASSES - 1)
    run(
        pooling.finish,
        pools,
        records[-1],
        records[0],
        *before,
        table,
        before.below.shape[1],
        *numbers,
        exponent.inverse_p_bits,
        P2=_slots(before.below),
        warps=8,
        **fixed,
    )


def _slots(below: Tensor) -> int:
    """Return a power of two that holds the sums of all programs, one of few, because each is a build of its own."""
    return max(power_of_two(below.shape[1]), 128)


def _add_up(record: Tensor, sums: Sums, exchange: Exchange, last: bool) -> Sums:
    """Add up a pass over all ranks, with one exchange. Every rank adds the same numbers in the same order."""
    floats = torch.stack([part.sum(1) for part in (sums if last else sums[:1])], 1)  # (R, 1 or 2)
    totals, gathered = exchange(record, floats)
    totals[:, _BINS + _LO : _BINS + _VALID] = record[:, _BINS + _LO : _BINS + _VALID]  # the bracket
    record.copy_(totals)
    below, *rest = gathered.sum(0).unsqueeze(1).unbind(2)
    return Sums(below.contiguous(), rest[0].contiguous() if rest else below)

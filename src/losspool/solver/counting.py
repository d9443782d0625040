"""Search for the saturated losses by counting, for pools that span several processes.

Each loss becomes an integer key that orders like it (:class:`Keys`). A
pass counts the losses of each pool in up to 262,143 bins between two thresholds lo and hi, where
η(lo) ≤ 0 < η(hi). All losses of a bin lie between its ends, so the counts bound η from both sides at
the end of every bin. That leaves the few bins between "surely not positive" and "surely positive"
for the next pass. Two passes (four in float64) narrow all keys down to a single one; with many
pools, which get fewer bins each, there are more.

Counts are integers, so the order of the additions does not matter: results are deterministic, and
equal on all processes. See docs/derivation.md, "Counting".
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from losspool.solver.powers import (
    CUT,
    LARGEST_LOG,
    Saturated,
    Searched,
    conjugate_exponent,
    is_uniform,
    pixel_numbers,
    running_sums,
)

Exchange = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps counts (R, K) and sums (R, S), in float64, to the counts added over all ranks, and the stack (ranks, R, S)."""

# Bins of all pools together, and the most and the fewest of one pool, as powers of two. Many bins make few passes.
_ALL_BINS, _MOST_BINS, _FEWEST_BINS = 19, 18, 10
_TOP = 0x7FEF_FFFF_FFFF_FFFF  # the largest float64


class Keys:
    """Losses as integer keys, and powers of their ratios.

    Keys hold the exponent and the significand, so they order like the losses. They are the bits of a float64; for
    float32 losses, the bits that a float32 can set. Void pixels and zero losses have the key 0.
    """

    dtype = torch.float64

    def __init__(self, losses: Tensor, q: float) -> None:
        self._losses, self._q = losses.double(), q
        single = losses.dtype != torch.float64
        self._dropped = 29 if single else 0  # trailing bits
        self._before = (874 << 23) - 1 if single else 0  # the smallest positive float32 gets the key 1
        self.bits = 32 if single else 63

    def keys(self, losses: Tensor | None = None) -> Tensor:
        losses = self._losses if losses is None else losses
        return (losses.view(torch.int64) >> self._dropped).sub_(self._before).clamp_(min=0)

    def values(self, keys: Tensor) -> Tensor:
        keys = keys + self._before if self._before else keys.clamp(1, _TOP)  # 0 would be divided by
        return (keys << self._dropped).view(torch.float64)

    def powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for the losses ℓ and u of two keys, at most 2^60."""
        return self.ratio_powers(self.values(keys).div_(self.values(reference)))

    def loss_powers(self, keys: Tensor, reference: Tensor) -> Tensor:
        """Return (ℓ/u)^q for all losses ℓ, of which ``keys`` are the keys, and for the loss u of ``reference``."""
        return self.ratio_powers(self._losses.clamp(min=0.0).div_(self.values(reference)))

    def ratio_powers(self, ratio: Tensor) -> Tensor:
        """Compute ratio^q in place, at most 2^60."""
        return ratio.log2_().mul_(self._q).clamp_(max=LARGEST_LOG).exp2_()


class Part:
    """The losses of each pool that this process holds, and what the other processes need to know of them."""

    def __init__(self, losses: Tensor, q: float) -> None:
        self.source = Keys(losses, q)
        self._losses, self._keys = losses, self.source.keys()

    def first(self, lo: Tensor, shift: Tensor, bins: int) -> tuple[Tensor, Tensor]:
        """Counts: those of :func:`_count`, and the void pixels. Sums: the largest loss."""
        void = (self._losses < 0).sum(1, keepdim=True)
        counts = torch.cat([_count(self._keys, lo, shift, bins), void], 1)
        return counts, self._losses.amax(1, keepdim=True).double()

    def next(self, lo: Tensor, shift: Tensor, bins: int, unit: Tensor) -> tuple[Tensor, Tensor]:
        """Sums: the powers of the losses up to lo, and the losses beyond the bins relative to ``unit``."""
        below = torch.where(self._keys <= lo, self.source.loss_powers(self._keys, lo), 0.0)
        beyond = self._keys > lo + (bins << shift)
        over = torch.where(beyond, self._losses.to(self.source.dtype) / unit, 0.0)
        return _count(self._keys, lo, shift, bins), torch.stack([below.sum(1), over.sum(1)], 1).double()


def search(losses: Tensor, *, p: float, m: float, share: bool, exchange: Exchange) -> Searched:
    """Find the saturated losses of each pool. ``m`` is a fraction of the valid pixels if ``share``, else a number."""
    part = Part(losses, conjugate_exponent(p))
    source = part.source
    bin_bits = min(max(_ALL_BINS - (len(losses) - 1).bit_length(), _FEWEST_BINS), _MOST_BINS, source.bits - 15)
    bins = (1 << bin_bits) - 1  # with one more, the end of the last bin would not fit into an int64
    passes = 1 - (bin_bits - source.bits) // (bin_bits - 2)  # up to four bins are left to the next pass
    steps = torch.arange(bins + 1, device=losses.device)

    # The first pass covers all positive floats. It also shows whether η has a positive root: not with fewer
    # than m positive losses.
    lo = torch.zeros(len(losses), 1, dtype=torch.int64, device=losses.device)
    shift = torch.full_like(lo, source.bits - bin_bits)
    counts, sums = exchange(*part.first(lo, shift, bins))
    slots, void, top = counts[:, :-1], counts[:, -1:], sums.amax(0).to(source.dtype)
    size = slots.sum(1, keepdim=True)
    count = size - void
    whole, fraction = pixel_numbers(m, share, count, source.dtype)
    broken = ~torch.isfinite(top)
    uniform = torch.full_like(broken, True) if is_uniform(p) else (whole - count) + fraction >= 0
    solvable = ~(broken | uniform) & ((whole - (size - slots[:, :1])) + fraction <= 0)
    unit = torch.where(top > 0, top, 1.0)
    below = over = torch.zeros_like(top)

    for index in range(passes):
        if index > 0:
            slots, sums = exchange(*part.next(lo, shift, bins, unit))
            below, over = sums.sum(0).to(source.dtype).split(1, 1)
        inside = slots[:, : bins + 1]  # lo and the bins
        room = (whole - size) + inside.cumsum(1) + fraction  # m - #{ℓ > end of the bin}
        masses = inside.to(source.dtype)
        masses[:, :1] = below
        ends = lo + (steps << shift)  # the largest key of each bin; the first entry is lo
        # Powers are relative to the lowest end that has room, so that none that matters under- or overflows.
        reference = lo + ((room <= 0).sum(1, keepdim=True).clamp_(max=bins) << shift)
        both = torch.stack([ends, (ends - ((1 << shift) - 1)).maximum(lo)])  # (2, R, 1 + bins)
        powers = source.powers(both, reference)
        most, least = running_sums(powers * masses)  # bounds on Σ_{ℓ ≤ end} (ℓ/reference)^q
        score, cut = room * powers[0], powers[0] >= CUT
        low = ((score <= least) & ~cut).sum(1, keepdim=True) - 1  # η ≤ 0 at the ends up to this one
        high = (bins + 1 - ((score > most) | cut).sum(1, keepdim=True)).clamp_(1, bins)  # η > 0 from this end on
        low = torch.where(solvable, low.clamp_(min=0).minimum(high - 1), 0)
        if index + 1 < passes:
            width = torch.where(solvable, (high - low) << shift, 1)
            lo = lo + (low << shift)
            # The least shift with which the bins span the width.
            shift = ((width - 1) // bins + 1).to(source.dtype).log2().ceil().long()

    # Each bin is now a single float. The losses beyond `low` are saturated. θ may exceed the largest loss, and
    # even the largest float: then the sum of powers is relative to the largest loss instead.
    ends = ends.minimum(source.keys(top))
    # A key may stand for a number between two denormals of the losses' dtype.
    theta = source.values(ends.gather(1, low)).to(losses.dtype).to(source.dtype)
    total = most.gather(1, low) / source.ratio_powers(theta / source.values(reference))
    saturated = Saturated(
        room=room.gather(1, low),
        sum=torch.where(steps > low, masses * (source.values(ends) / unit), 0.0).sum(1, keepdim=True) + over,
        largest=torch.where(solvable, theta, 0.0),
        total=torch.where(solvable, total, 1.0),
    )
    facts = (count.to(source.dtype), whole + fraction, top, uniform, broken)
    return Searched(Saturated(*(field.squeeze(1) for field in saturated)), *(fact.squeeze(1) for fact in facts))


def _count(keys: Tensor, lo: Tensor, shift: Tensor, bins: int) -> Tensor:
    """Return (R, bins + 2) counts: of keys up to lo, of each bin, and of the keys beyond them."""
    slots = ((keys - (lo + 1)) >> shift).clamp_(-1, bins).add_(1)
    counts = torch.zeros(keys.shape[0], bins + 2, dtype=torch.int64, device=keys.device)
    return counts.scatter_add_(1, slots, torch.ones_like(lo).expand_as(slots))

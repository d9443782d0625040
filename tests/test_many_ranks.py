"""scope="global" over 1,024 simulated ranks; tests/clusters/test_collectives.py has real ones."""

import torch

from losspool import solver
from losspool.solver import counting

RANKS = 1024


class Parts:
    """The parts of all ranks, in one process: what each has counted and summed is added as an all-reduce adds it."""

    def __init__(self, losses, q):
        self._parts = [counting_part(each, q) for each in losses.chunk(RANKS, 1)]
        assert len(self._parts) == RANKS
        self.source = self._parts[0].source

    def _together(self, found):
        counts, sums = next(found)
        stacked = [sums]
        for more, sums in found:
            counts += more
            stacked.append(sums)
        return counts, torch.stack(stacked)

    def first(self, *arguments):
        return self._together(part.first(*arguments) for part in self._parts)

    def next(self, *arguments):
        return self._together(part.next(*arguments) for part in self._parts)


counting_part = counting.Part


def test_a_batch_split_1024_ways_has_the_result_of_the_whole(monkeypatch):
    """And each rank sends 1.06 MB per exchange, with places for the sums of all ranks, in two exchanges."""
    g = torch.Generator().manual_seed(0)
    losses = torch.randn(1, 64 * RANKS, generator=g).mul_(3).exp_()  # heavy tails: few ranks hold the largest
    losses[torch.rand(losses.shape, generator=g) < 0.1] = -1.0  # void
    losses[:, : 3 * 64] = -1.0  # three ranks have nothing else
    sent = []

    def exchange(counts, sums):
        sent.append(8 * (counts.numel() + sums.numel()))  # a rank's message has places for the sums of all
        return counts, sums

    whole = solver.solve(losses, p=1.3, m=0.25, share=True)
    monkeypatch.setattr(counting, "Part", Parts)
    apart = solver.solve(losses, p=1.3, m=0.25, share=True, exchange=exchange)
    for name in ("value", "alpha", "tau", "valid"):
        torch.testing.assert_close(getattr(apart, name), getattr(whole, name), rtol=1e-6, atol=0)
    expected = solver.weights(losses, whole, 1.3)
    torch.testing.assert_close(solver.weights(losses, apart, 1.3), expected, rtol=1e-6, atol=1e-6 * float(whole.tau))
    assert sent == [8 * (2**17 + 2 + RANKS), 8 * (2**17 + 1 + 2 * RANKS)]

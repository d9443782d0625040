"""How many rounds the search takes: a count, which no machine changes."""

import pytest
import torch

import problems
from losspool import reference, solver
from losspool.solver import bracketed, counting, host, newton, survey
from test_exactness import assert_row


@pytest.fixture
def rounds(monkeypatch):
    """The number of columns of every reading of the losses so far."""
    counted = []
    count_and_sum, read_at = newton._count_and_sum, bracketed._TallyKeeper._read

    def note_and_count(blocks, *others):
        counted.append(sum(block.shape[1] for block in blocks))
        return count_and_sum(blocks, *others)

    def read(self, theta):
        counted.append(sum(block.shape[1] for block in self._blocks))
        return read_at(self, theta)

    monkeypatch.setattr(newton, "_count_and_sum", note_and_count)
    monkeypatch.setattr(bracketed._TallyKeeper, "_read", read)
    return counted


def solve(losses, p, m=0.25):
    return solver.solve(losses, p=p, m=m, share=True)


@pytest.mark.parametrize("name", ["uniform", "exponential", "sorted", "log-normal 3", "log-normal 6", "striped"])
def test_a_good_start_leaves_a_few_rounds(name, rounds):
    losses = problems.losses(512 * 512)[name].view(1, -1)
    for p in (1.1, 1.3, 1.7, 2.0, 10.0):
        rounds.clear()
        solve(losses, p)
        assert 0 < len(rounds) <= 8, p


def test_columns_do_not_mislead_the_start(rounds):
    """A stride that divides the width would see one column in 64 only: here, the wrong ones."""
    g = torch.Generator().manual_seed(0)
    losses = torch.rand(512, 512, generator=g)
    losses[:, ::64] *= 1000
    solve(losses.view(1, -1), 1.3)
    striped = len(rounds)
    rounds.clear()
    solve(losses.view(1, -1)[:, torch.randperm(512 * 512, generator=g)], 1.3)
    assert striped <= len(rounds) + 2


@pytest.mark.parametrize("p", [1.0, 1.001])
def test_the_bound_holds_where_newton_crawls(p, rounds):
    for size, starts in ((20_000, 1), (1_000, 2)):  # small pools are tried from their mean first
        for name, losses in problems.losses(size).items():
            for m in (1e-3, 0.25, 0.9):
                rounds.clear()
                solve(losses.view(1, -1), p, m)
                assert len(rounds) <= 104 + starts * newton._ROUNDS, name


@pytest.mark.parametrize("p", [1.1, 1.3, 2.0])
@pytest.mark.parametrize("size", [300, 1024, 4096, 16384])
def test_the_losses_of_a_network_take_a_few_rounds_from_their_mean(size, p, rounds):
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 5, size, generator=g), torch.randint(0, 5, (4, size), generator=g)
    for margin in (0.0, 3.0, 6.0):  # of the label's logit: from the first step to a trained network
        sure = logits + margin * torch.nn.functional.one_hot(labels, 5).movedim(2, 1)
        solve(torch.nn.functional.cross_entropy(sure, labels, reduction="none"), p)
        assert 0 < len(rounds) <= 8
        rounds.clear()


def count(losses, p, m):
    """Solve pools of one process as if others could hold a part of them."""
    return solver.solve(losses, p=p, m=m, share=False, exchange=lambda counts, sums: (counts, sums[None]))


def test_counting_takes_a_fixed_number_of_passes(monkeypatch):
    counted = []
    original = counting._count
    monkeypatch.setattr(counting, "_count", lambda *args: counted.append(args) or original(*args))
    every = list(problems.losses(100).values())
    for dtype, expected in ((torch.float32, 2), (torch.float64, 4)):
        for losses in every:
            counted.clear()
            count(losses.to(dtype)[None], 1.3, 25)
            assert len(counted) == expected
    counted.clear()
    count(torch.stack(every).repeat(24, 1), 1.3, 25)  # so many pools get fewer bins each
    assert len(counted) == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bin_bits", [10, 13, 18])
def test_the_last_bins_are_single_floats(dtype, bin_bits, monkeypatch):
    """So that the search is exact: the last shift is 0 in every pool."""
    monkeypatch.setattr(counting, "_ALL_BINS", 30)
    monkeypatch.setattr(counting, "_MOST_BINS", bin_bits)
    shifts = []
    original = counting._count
    monkeypatch.setattr(counting, "_count", lambda *args: shifts.append(args[2]) or original(*args))
    for _, rows, m in problems.stacked(7 if bin_bits == 18 else 100):
        rows = rows[:3] if bin_bits == 18 else rows
        for p in (1.3,) if bin_bits == 18 else (1.0, 1.3, 1000.0):
            count(rows.to(dtype), p, m)
            assert (shifts[-1] == 0).all(), (m, p)


@pytest.mark.parametrize(("n", "autocast"), [(7, None), (100, torch.bfloat16), (10_000, None), (10_000, torch.float16)])
def test_float32_alone_is_enough(n, autocast, monkeypatch):
    """On a device without float64, and without denormals; under autocast as well."""
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    monkeypatch.setattr(host, "has_float64", lambda tensor: False)
    for names, rows, m in problems.stacked(n):
        for p in (1.3,) if autocast == torch.float16 else (1.0, 1.001, 1.3, 1000.0):
            with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                solution = solver.solve(rows, p=p, m=m, share=False)
                weights = solver.weights(rows, solution, p)
            assert solution.value.dtype == torch.float32
            for name, losses, value, found in zip(names, rows, solution.value.tolist(), weights, strict=True):
                if not (losses[losses > 0] < 1e-37).any():
                    assert_row(losses, value, found, p, reference.pool(losses, p=p, m=m), (name, p, m))


@pytest.mark.parametrize("size", [64, 96, 4096, 4097, 302_500, 2048 * 1024])
def test_the_stride_of_the_sample_shares_no_factor_with_the_size(size):
    stride = newton._coprime_stride(size, 4096)
    assert torch.gcd(torch.tensor(stride), torch.tensor(size)) == 1
    assert len(range(0, size, stride)) <= 4096


def test_pools_of_a_batch_do_not_disturb_each_other():
    """Each pool's result is what it is alone, however unlike the others are."""
    rows = torch.stack(list(problems.losses(2000).values()))
    together = solve(rows, 1.3)
    weights = solver.weights(rows, together, 1.3)
    for index in range(len(rows)):
        row = rows[index : index + 1]
        alone = solve(row, 1.3)
        assert float(together.value[index]) == pytest.approx(float(alone.value), rel=1e-6, abs=1e-45)
        torch.testing.assert_close(weights[index], solver.weights(row, alone, 1.3)[0], rtol=1e-5, atol=1e-10)


def test_blocks_do_not_change_the_result(monkeypatch):
    losses = torch.stack([problems.losses(5000)[name] for name in ("exponential", "log-normal 6", "ties")])
    whole = [solve(losses, p) for p in (1.0, 1.3)]
    monkeypatch.setattr(survey, "_BLOCK", 1000)
    for expected, p in zip(whole, (1.0, 1.3), strict=True):
        parts = solve(losses, p)
        torch.testing.assert_close(parts.value, expected.value, rtol=1e-6, atol=0)
        torch.testing.assert_close(parts.alpha, expected.alpha, rtol=1e-6, atol=0)


def test_a_step_that_rounds_to_just_below_the_root_does_not_end_the_search(monkeypatch):
    """There the losses at α* count as saturated and leave no room; the search must go on."""
    original = bracketed.newton_step
    monkeypatch.setattr(bracketed, "newton_step", lambda *args: original(*args) * (1 - 2.0**-18))
    losses = torch.tensor([[1.5 * (1 + 100 * 2.0**-23)] + [1.5] * 10 + [1e-6]])
    solution = solver.solve(losses, p=1.7, m=11.0, share=False)
    assert float(solution.value) == pytest.approx(reference.pool(losses, p=1.7, m=11).value, rel=1e-6)

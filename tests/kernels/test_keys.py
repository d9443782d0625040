"""Keys order like losses; powers and logarithms are as precise as docs/kernels.md says."""

import math

import torch
import triton
import triton.language as tl

from losspool.kernels import keys
from losspool.kernels.launch import exponents

SIZE = 256


@triton.jit
def _to_keys(losses, out, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(out + index, keys.to_key(tl.load(losses + index)).to(tl.int64))


@triton.jit
def _powers(losses, other, q, q_low, out, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    key, other_key = keys.to_key(tl.load(losses + index)), keys.to_key(tl.load(other))
    tl.store(out + index, keys.power(key, other_key, q, q_low))


@triton.jit
def _logarithms(x, out, SIZE: tl.constexpr):
    index = tl.arange(0, SIZE)
    tl.store(out + index, keys.natural_log(tl.load(x + index)))


def to_keys(losses):
    out = torch.empty(SIZE, dtype=torch.int64)
    _to_keys[(1,)](losses, out, SIZE)
    return out


def spread():
    """Losses of every size, denormals included, in ascending order."""
    return torch.logspace(-44.5, 38.5, SIZE, dtype=torch.float64).float().sort().values


def test_keys_order_like_losses_and_octaves_are_equally_wide():
    losses = spread()
    found = to_keys(losses)
    assert (found.diff() > 0).all()
    logs = losses.double().log2()
    octaves = (found - found[0]).double() / 2**23
    assert (octaves - (logs - logs[0])).abs().max() < 0.1  # linear inside an octave, logarithms across them


def test_keys_of_special_losses():
    losses = torch.zeros(SIZE)
    losses[:6] = torch.tensor([-1.0, -0.0, 0.0, math.inf, math.nan, 3.4028234663852886e38])
    void, minus_zero, zero, infinite, nan, top = to_keys(losses)[:6].tolist()
    assert (void, minus_zero, zero) == (0, 2**23, 2**23)
    assert (top, infinite, nan) == (keys.TOP.value, keys.TOP.value + 1, keys.TOP.value + 2)


def test_powers():
    """Close to ℓ' and far below it, where rounding the logarithm would show. Small terms of a large q are rougher."""
    for p in (1.001, 1.3, 10.0):
        exponent = exponents(p)
        q = 1 + exponent.less_one
        other = torch.tensor([0.7])
        losses = (0.7 * torch.linspace(-30 / q, 0, SIZE, dtype=torch.float64).exp2()).float()
        losses[-64:] = 0.7 * (1 - 2.0**-23 * torch.arange(63, -1, -1))
        out = torch.empty(SIZE)
        _powers[(1,)](losses, other, exponent.q, exponent.q_low, out, SIZE)
        truth = (q * (losses.double() / other.double()).log()).exp()
        errors = (out.double() - truth).abs()
        assert (errors if q > 100 else errors / truth).max() < 4e-7, p


def test_logarithms():
    x = 1 + torch.logspace(-7, 6, SIZE, dtype=torch.float64).float()
    x[-3:] = torch.tensor([1.0, math.inf, math.nan])
    out = torch.empty(SIZE)
    _logarithms[(1,)](x, out, SIZE)
    torch.testing.assert_close(out.double(), x.double().log(), rtol=3e-7, atol=0, equal_nan=True)

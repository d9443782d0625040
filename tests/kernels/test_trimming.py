"""trim and reduction="pool" with kernels, against float64 tensor operations."""

import pytest
import torch
from triton.runtime.errors import InterpreterError

from kernel_cases import assert_float64, labels_of, logits_of
from losspool import PoolingStats, cross_entropy, max_pool, pooling_weights, upsampled_cross_entropy


@pytest.mark.parametrize("options", [{}, {"weight": [0.5, 2.0, 0.0, 1.0, 3.0], "scope": "batch", "p": 1.0, "m": 7}])
def test_trimmed_logits(options):
    assert_float64(cross_entropy, logits_of((2, 5, 6, 9)), labels_of((2, 6, 9)), trim=0.1, **options)
    assert_float64(upsampled_cross_entropy, logits_of((2, 5, 2, 3)), labels_of((2, 7, 9)), trim=0.1, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("masked", [False, True])
def test_pooling_after_trimming_is_pooling_the_rest(dtype, masked):
    losses = logits_of((2, 60), dtype).detach().abs()
    mask = losses < 6 if masked else torch.ones_like(losses, dtype=torch.bool)
    ranked = [losses[row][mask[row]].sort().values for row in range(2)]
    largest = [values[-1 - int(0.2 * len(values))] for values in ranked]
    kept, stats, alone = mask & (losses <= torch.stack(largest).unsqueeze(1)), PoolingStats(), PoolingStats()
    losses.requires_grad_()
    trimmed = max_pool(losses, mask=mask if masked else None, trim=0.2, stats=stats)
    expected = max_pool(losses, mask=kept, stats=alone)
    assert torch.equal(trimmed, expected)
    assert torch.equal(*(torch.autograd.grad(loss, losses)[0] for loss in (trimmed, expected)))
    assert torch.equal(stats.weights, alone.weights)
    assert torch.equal(stats.trimmed, (mask & ~kept).sum(1))
    assert torch.equal(pooling_weights(losses, mask=mask, trim=0.2), alone.weights)


def test_a_negative_loss_is_refused_with_trim_too():
    with pytest.raises(InterpreterError, match="losses must not be negative"):
        max_pool(torch.tensor([[1.0, -1.0, 2.0]]), trim=0.4)


def test_every_pool_has_a_value_and_a_gradient_of_its_own():
    logits, labels, factors = logits_of((3, 5, 40)), labels_of((3, 40)), torch.tensor([2.0, -1.0, 5.0])
    labels[1] = 255
    exact = logits.detach().double().requires_grad_()
    found, truth = (cross_entropy(x, labels, ignore_index=255, reduction="pool") for x in (logits, exact))
    torch.testing.assert_close(found.double(), truth, rtol=1e-6, atol=0)
    assert found[1] == 0
    (got,) = torch.autograd.grad((factors * found).sum(), logits)
    (expected,) = torch.autograd.grad((factors * truth).sum(), exact)
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    losses = logits.detach().abs().flatten(1).requires_grad_()
    (got,) = torch.autograd.grad((factors * max_pool(losses, reduction="pool")).sum(), losses)
    torch.testing.assert_close(got, factors.unsqueeze(1) * pooling_weights(losses), rtol=1e-6, atol=0)

"""The calls and targets of nn.CrossEntropyLoss and nn.BCEWithLogitsLoss, as frameworks make them."""

import inspect
import math
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import drop_in_table
import losspool
from losspool import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    LossMaxPooling,
    PoolingStats,
    UpsampledCrossEntropyLoss,
    _validation,
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    pooling_weights,
    upsampled_cross_entropy,
)
from tiny_batch import FINE, LABELS, LOGITS, SHARES


def test_the_table_of_the_documentation_is_what_the_calls_do():
    _, inside, _ = drop_in_table.split_page(drop_in_table.PAGE.read_text())
    assert inside == drop_in_table.table()
    assert inside.count(drop_in_table.EQUAL) > 20


@pytest.mark.parametrize("target", [LABELS.unsqueeze(1), LABELS.float(), LABELS.unsqueeze(1).to(torch.float16)])
def test_targets_that_mean_the_same_labels(target):
    assert torch.equal(cross_entropy(LOGITS, target), cross_entropy(LOGITS, LABELS))
    fine = target.repeat_interleave(2, -1).repeat_interleave(2, -2)
    assert torch.equal(upsampled_cross_entropy(LOGITS, fine), upsampled_cross_entropy(LOGITS, FINE))


def test_void_among_floats():
    floats = LABELS.float()
    floats[0, 0] = 255
    found, expected = (cross_entropy(LOGITS, labels, ignore_index=255) for labels in (floats, floats.long()))
    assert torch.equal(found, expected)
    with pytest.raises(ValueError, match=r"label 255, but there are 3 classes .* ignore_index is None; did you mean"):
        cross_entropy(LOGITS, floats, ignore_index=None)


@pytest.mark.parametrize("bad", [0.5, math.nan, math.inf])
def test_a_label_that_is_not_a_whole_number(bad):
    target = LABELS.float()
    target[1, 2, 3] = bad
    for call in (lambda: cross_entropy(LOGITS, target), lambda: upsampled_cross_entropy(LOGITS, target)):
        with pytest.raises(ValueError, match=rf"whole class indices, got {bad}; class probabilities need .*2, 3, 4, 5"):
            call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [1e30, -1e30, 2.0**63, -(2.0**63)])
def test_a_label_that_is_no_64_bit_number(bad, dtype):
    """As an int64 it would be another label, or the one that stands for no void."""
    target = LABELS.to(dtype)
    target[1, 2, 3] = bad
    shown = re.escape(repr(target[1, 2, 3].item()))
    for void in (None, -100, -(2**63)):
        for call in (cross_entropy, upsampled_cross_entropy):
            with pytest.raises(
                ValueError, match=rf"holds the label {shown}, but there are 3 .* ignore_index is {void}$"
            ):
                call(LOGITS, target, ignore_index=void)


def test_the_smallest_integer_is_not_void_either():
    target = LABELS.clone()
    target[1, 2, 3] = -(2**63)
    with pytest.raises(ValueError, match=rf"label -{2**63}, but there are 3 classes .* ignore_index is None"):
        cross_entropy(LOGITS, target, ignore_index=None)
    expected = cross_entropy(LOGITS, target.clamp(min=-100))
    assert torch.equal(cross_entropy(LOGITS, target, ignore_index=-(2**63)), expected)


@pytest.mark.parametrize("void", [2**24, -(2**24), 2**53, -(2**63)])
def test_only_the_very_label_is_void(void):
    """Its neighbour would be the same number as a float."""
    target = LABELS.clone()
    target[1, 2, 3] = void + 1
    with pytest.raises(ValueError, match=f"label {void + 1}, but there are 3 classes"):
        cross_entropy(LOGITS, target, ignore_index=void)
    target[1, 2, 3] = void
    expected = cross_entropy(LOGITS, target.clamp(-100, 3), ignore_index=-100 if void < 0 else 3)
    assert torch.equal(cross_entropy(LOGITS, target, ignore_index=void), expected)


@pytest.mark.parametrize("options", [{}, {"weight": [0.5, 2.0, 0.0], "label_smoothing": 0.2}, {"p": 1.0, "m": 7}])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_class_probabilities_pool_the_losses_of_torch(options, dtype):
    logits, stats = LOGITS.to(dtype).requires_grad_(), PoolingStats()
    pooling = {name: options[name] for name in ("p", "m") if name in options}
    pixel = {name: options[name] for name in ("weight", "label_smoothing") if name in options}
    loss = cross_entropy(logits, SHARES, **options, stats=stats)
    weight = torch.tensor(pixel.pop("weight", [1.0, 1, 1]), dtype=dtype)
    plain = F.cross_entropy(logits, SHARES.to(dtype), weight, reduction="none", **pixel)
    torch.testing.assert_close(loss, max_pool(plain, **pooling))
    torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (loss, max_pool(plain, **pooling))))
    assert torch.equal(stats.prediction, LOGITS.argmax(1))
    assert stats.weights.shape == LABELS.shape


def test_class_probabilities_may_have_a_gradient():
    """As those of a teacher that learns, too."""
    shares, same = (SHARES.clone().requires_grad_() for _ in range(2))
    cross_entropy(LOGITS, shares).backward()
    max_pool(F.cross_entropy(LOGITS, same, reduction="none")).backward()
    torch.testing.assert_close(shares.grad, same.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_class_probabilities_in_blocks(dtype, monkeypatch):
    """Of some pixels each, or of whole images; read again by a second backward pass, or in half precision."""
    logits = LOGITS.to(dtype).requires_grad_()
    plain = F.cross_entropy(logits.float(), SHARES, label_smoothing=0.1, reduction="none")
    (expected,) = torch.autograd.grad(max_pool(plain), logits)
    for block in (1, 21, 60, 1 << 20):
        monkeypatch.setattr("losspool.ops.logits._CPU_BLOCK", block)
        loss = cross_entropy(logits, SHARES, label_smoothing=0.1)
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(loss, logits, retain_graph=True)[0], expected)


def test_one_hot_probabilities_are_labels():
    one_hot = F.one_hot(LABELS, 3).movedim(-1, 1).double()
    for options in ({}, {"scope": "batch"}, {"weight": [1.0, 2.0, 3.0], "label_smoothing": 0.3}):
        expected = cross_entropy(LOGITS, LABELS, **options).item()
        assert cross_entropy(LOGITS, one_hot, **options).item() == pytest.approx(expected, rel=1e-6)
    fine = F.one_hot(FINE, 3).movedim(-1, 1).float()
    logits = LOGITS.clone().requires_grad_()
    got, expected = upsampled_cross_entropy(logits, fine), upsampled_cross_entropy(logits, FINE)
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (got, expected)))
    flat = cross_entropy(LOGITS[..., 0, 0], one_hot[..., 0, 0], scope="batch")
    assert flat.item() == pytest.approx(cross_entropy(LOGITS[..., 0, 0], LABELS[:, 0, 0], scope="batch").item())


def test_weights_by_position_and_as_lists():
    weight = torch.tensor([1.0, 2.0, 0.5])
    for function, target in ((cross_entropy, LABELS), (upsampled_cross_entropy, FINE)):
        expected = function(LOGITS, target, weight=weight)
        for given in (weight, weight.tolist(), tuple(weight.tolist()), weight.numpy()):
            assert torch.equal(function(LOGITS, target, given), expected)
    criterion = CrossEntropyLoss([1, 2, 0.5])
    assert torch.equal(criterion(LOGITS, LABELS), cross_entropy(LOGITS, LABELS, weight))
    assert torch.equal(criterion.state_dict()["weight"], weight)
    assert torch.equal(UpsampledCrossEntropyLoss(weight)(LOGITS, FINE), upsampled_cross_entropy(LOGITS, FINE, weight))


@pytest.mark.parametrize(("scope", "pools"), [("image", 2), ("batch", 1), ("global", 1)])
def test_one_value_per_pool(scope, pools):
    logits = LOGITS.clone().requires_grad_()
    values = cross_entropy(logits, LABELS, reduction="pool", scope=scope)
    assert values.shape == (pools,)
    assert values.mean().item() == pytest.approx(cross_entropy(logits, LABELS, scope=scope).item())
    if scope == "image":
        assert values[1].item() == pytest.approx(cross_entropy(logits[1:], LABELS[1:]).item())
        (gradient,) = torch.autograd.grad(3 * values[1] - values[0], logits)
        for image, factor in ((0, -1), (1, 3)):
            (alone,) = torch.autograd.grad(cross_entropy(logits[[image]], LABELS[[image]]), logits)
            torch.testing.assert_close(gradient[image], factor * alone[image])
    void = torch.full_like(LABELS, -100)
    assert (cross_entropy(LOGITS, void, reduction="pool", scope=scope) == torch.zeros(pools)).all()
    assert max_pool(torch.rand(2, 9), reduction="pool", scope=scope).shape == (pools,)
    assert upsampled_cross_entropy(LOGITS, FINE, reduction="pool", scope=scope).shape == (pools,)


@pytest.mark.parametrize("make", [CrossEntropyLoss, UpsampledCrossEntropyLoss, BCEWithLogitsLoss])
def test_arguments_of_torch_that_are_refused_by_name(make):
    for name in ("size_average", "reduce"):
        make(**{name: None})  # the default of torch
        with pytest.raises(TypeError, match=f'{name} is deprecated .* use reduction="mean"'):
            make(**{name: True})
        with pytest.raises(TypeError, match=name):
            cross_entropy(LOGITS, LABELS, **{name: False})
    with pytest.raises(ValueError, match=r"got 'none'; a pixel's own value is stats.weights times"):
        make(reduction="none")
    with pytest.raises(ValueError, match=r"got 'sum'; for a sum over pools, add up those of reduction=.pool"):
        make(reduction="sum")
    with pytest.raises(ValueError, match=r'reduction must be "mean" or "pool" .* got 3$'):
        max_pool(torch.rand(2, 3), reduction=3)


@pytest.mark.parametrize(("m", "same"), [("25%", 0.25), (" 12.5 % ", 0.125), ("30px", 30), ("100%", 1.0)])
def test_m_as_text(m, same):
    losses = torch.rand(2, 200)
    assert torch.equal(max_pool(losses, m=m), max_pool(losses, m=same))
    assert torch.equal(LossMaxPooling(m=m)(losses), max_pool(losses, m=same))


@pytest.mark.parametrize("m", [np.float32(0.25), np.float64(0.25), np.float16(0.25), np.int64(50), np.uint8(50)])
def test_numbers_of_numpy(m):
    losses = torch.rand(2, 200)
    assert torch.equal(max_pool(losses, m=m, p=np.float32(2), trim=np.float64(0)), max_pool(losses, m=m.item(), p=2))
    found, expected = (cross_entropy(LOGITS, LABELS, ignore_index=void) for void in (np.int64(1), 1))
    assert torch.equal(found, expected)
    with pytest.raises(TypeError, match="of type bool"):
        max_pool(losses, m=np.bool_(True))
    module = CrossEntropyLoss(m=m, ignore_index=np.int64(1), label_smoothing=np.float32(0.5))
    kept = (module.m, module.ignore_index, module.label_smoothing)
    assert {type(value) for value in kept} <= {int, float}, "constants for torch.compile"


def test_a_bare_one_warns_once():
    _validation._warn_of_one_pixel.cache_clear()
    losses = torch.rand(2, 9)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for m in (1.0, "1px", 2, np.float32(1)):
            max_pool(losses, m=m)
        assert not caught
        criterion = LossMaxPooling(m=1)
        assert torch.equal(criterion(losses), max_pool(losses, m="1px"))
        max_pool(losses, m=1)
    (warning,) = caught
    assert 'm=1.0 for all pixels, or m="1px"' in str(warning.message)
    assert warning.filename == __file__
    calls = (lambda: max_pool(losses, m=1), lambda: cross_entropy(LOGITS, LABELS, m=1), lambda: CrossEntropyLoss(m=1))
    for call in calls:
        _validation._warn_of_one_pixel.cache_clear()
        with pytest.warns(UserWarning, match="one pixel") as caught:
            call()
        assert (caught[0].filename, caught[0].lineno) == (__file__, call.__code__.co_firstlineno)


class TestBinary:
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(3))
    target = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(4))
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(5)) < 0.8

    @pytest.mark.parametrize("options", [{}, {"scope": "batch", "p": 1.0, "m": 9}, {"trim": 0.1, "reduction": "pool"}])
    @pytest.mark.parametrize("masked", [False, True])
    def test_it_pools_the_losses_of_torch(self, options, masked):
        logits, stats, mask = self.logits.clone().requires_grad_(), PoolingStats(), self.mask if masked else None
        scales = {"weight": torch.rand(4, 5), "pos_weight": torch.tensor([1.0, 4.0, 0.5]).view(3, 1, 1)}
        plain = F.binary_cross_entropy_with_logits(logits, self.target, reduction="none", **scales)
        got = binary_cross_entropy_with_logits(logits, self.target, mask=mask, stats=stats, **scales, **options)
        expected = max_pool(plain, mask=mask, **options)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), logits)[0] for loss in (got, expected)))
        assert stats.weights.shape == logits.shape
        assert stats.prediction is None
        module = BCEWithLogitsLoss(**scales, **options)
        assert torch.equal(module(logits, self.target, mask), got)
        assert set(module.state_dict()) == {"weight", "pos_weight"}

    def test_an_image_is_one_pool_of_pixels_and_labels(self):
        flat = binary_cross_entropy_with_logits(self.logits.flatten(1), self.target.flatten(1))
        assert torch.equal(flat, binary_cross_entropy_with_logits(self.logits, self.target))

    def test_targets_as_frameworks_deliver_them(self):
        logits, labels = self.logits[:, :1], self.target[:, 0] > 0.5
        expected = binary_cross_entropy_with_logits(logits, labels.unsqueeze(1).float())
        kinds = (torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.float8_e5m2)
        given = (labels.to(kind) for kind in kinds)
        for target in (labels, labels.long(), labels.unsqueeze(1), labels.double(), *given):
            assert torch.equal(binary_cross_entropy_with_logits(logits, target), expected)
        half = binary_cross_entropy_with_logits(logits.half(), labels)
        assert half.dtype == torch.float32
        assert half.item() == pytest.approx(expected.item(), rel=1e-2)

    def test_what_is_masked_has_no_effect(self):
        logits, target = self.logits.clone(), self.target.clone()
        logits[:, :, 0], target[:, :, 0] = math.nan, 255
        mask = torch.ones(4, 5, dtype=torch.bool).index_fill(0, torch.tensor(0), False)
        logits.requires_grad_()
        loss = binary_cross_entropy_with_logits(logits, target, mask=mask)
        loss.backward()
        expected = binary_cross_entropy_with_logits(self.logits[:, :, 1:], self.target[:, :, 1:])
        assert loss.item() == pytest.approx(expected.item())
        assert (logits.grad[:, :, 0] == 0).all()

    @pytest.mark.parametrize("value", [-100.0, -20.0, 0.0, 20.0, 100.0])
    def test_confident_logits(self, value):
        """A loss that rounds to below zero would be refused."""
        for target in (0.0, 0.3, 1.0):
            logits, targets = torch.full((1, 9), value), torch.full((1, 9), target)
            assert binary_cross_entropy_with_logits(logits, targets, pos_weight=0.1) >= 0

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda x, t: (x, t * 255), ValueError, r"between 0 and 1, got .*; leave void pixels out with mask"),
            (lambda x, t: (x, 255 * (t > 0.5)), ValueError, r"got 255\.0; pass a mask of 0 and 255 as target / 255"),
            (lambda x, t: (x, (t > 0.5) + 255 * (t < 0.1)), ValueError, r"got 255\.0; leave void pixels out with mask"),
            (lambda x, t: (x, t[:, 0]), ValueError, r"\(2, 3, 4, 5\) of the input, got \(2, 4, 5\); for class indices"),
            (lambda x, t: (x, t, [1.0, 2.0, 3.0]), ValueError, r"weight has shape \(3,\), .*weight.view\(-1, 1, 1\)"),
            (lambda x, t: (x, t, -1.0), ValueError, r"weight must not be negative, got -1.0"),
            (lambda x, t: (x, t, "a"), TypeError, r"weight must be a floating-point tensor or a list .* got 'a'"),
            (lambda x, t: (x[0, 0, 0], t[0, 0, 0]), ValueError, 'use scope="batch"'),
            (lambda x, t: (x[0, 0, 0, 0], t[0, 0, 0, 0]), ValueError, "at least one dimension"),
        ],
    )
    def test_mistakes(self, call, error, message):
        with pytest.raises(error, match=message):
            binary_cross_entropy_with_logits(*call(self.logits, self.target))


@pytest.mark.parametrize("shape", [(5,), (4, 1), (1, 4, 5), (2, 1, 1), (1, 1, 1, 1), (2, 3, 4, 5)])
def test_a_mask_is_broadcast(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.7
    if len(shape) == 3:
        mask = mask.unsqueeze(1)
    losses = LOGITS.abs()
    full = mask.expand(losses.shape).clone()
    assert torch.equal(max_pool(losses, mask=mask), max_pool(losses, mask=full))
    assert torch.equal(pooling_weights(losses, mask=mask), pooling_weights(losses, mask=full))


@pytest.mark.parametrize("name", [name for name in losspool.__all__ if name != "PoolingStats"])
def test_help_names_every_argument(name):
    thing = getattr(losspool, name)
    documented = inspect.getdoc(thing)
    for argument in inspect.signature(thing).parameters:
        assert f"{argument}:" in documented or f"{argument}," in documented, argument

"""Messages that name the next step: what to do instead of a wrong call."""

import pytest
import torch
import torch.nn.functional as F

from losspool import (
    CrossEntropyLoss,
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    upsampled_cross_entropy,
)
from tiny_batch import FINE, LABELS, LOGITS, SHARES


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cross_entropy({"out": LOGITS}, LABELS), TypeError, r"got dict; index it, such as input\['out'\]"),
        (lambda: cross_entropy([LOGITS], LABELS), TypeError, r"got list; index it, such as input\[0\]"),
        (lambda: cross_entropy(LOGITS, (LABELS, 3)), TypeError, r"got tuple; index it, such as target\[0\]"),
        (
            lambda: cross_entropy(LOGITS, FINE),
            ValueError,
            r"got \(2, 8, 10\); for coarse logits use losspool.upsampled",
        ),
        (
            lambda: cross_entropy(LOGITS, LABELS[:, ::2, ::2]),
            ValueError,
            r"the logits are larger: reduce them with F.interpolate\(input, target.shape\[-2:\], mode='bilinear'\)",
        ),
        (lambda: cross_entropy(LOGITS.movedim(1, -1), LABELS), ValueError, r"input.movedim\(-1, 1\)"),
        (lambda: cross_entropy(LOGITS, LABELS.unsqueeze(-1)), ValueError, r"drop the last axis: target.squeeze\(-1\)"),
        (
            lambda: cross_entropy(LOGITS.movedim(1, -1), LABELS.unsqueeze(-1)),
            ValueError,
            r"second axis: input.movedim\(-1, 1\), target.squeeze\(-1\)",
        ),
        (lambda: cross_entropy(LOGITS, LABELS.mT), ValueError, r"swapped: target.transpose\(-1, -2\)"),
        (
            lambda: cross_entropy(LOGITS[..., ::2, ::2], SHARES),
            ValueError,
            r"got \(2, 3, 4, 5\); for coarse logits use losspool.upsampled_cross_entropy",
        ),
        (
            lambda: cross_entropy(torch.rand(2, 3, 2, 2, 2), torch.zeros(2, 4, 4, 4).long()),
            ValueError,
            "; resize the logits with F.interpolate",
        ),
        (
            lambda: upsampled_cross_entropy(LOGITS, LABELS[:, ::2, ::2]),
            ValueError,
            r"is 4 high, target of shape \(2, 2, 3\) is 2; reduce them with F.interpolate",
        ),
        *(
            (lambda call=call: call(LOGITS[:, :1], LABELS.unsqueeze(1)), ValueError, "use losspool.binary_cross")
            for call in (cross_entropy, upsampled_cross_entropy)
        ),
        (
            lambda: binary_cross_entropy_with_logits(LOGITS[:, 0], LABELS.unsqueeze(1)),
            ValueError,
            r"drop its second axis: target.squeeze\(1\)",
        ),
        (
            lambda: binary_cross_entropy_with_logits(LOGITS[..., ::2, ::2], SHARES),
            ValueError,
            "resize the logits with F.interpolate",
        ),
        (
            lambda: binary_cross_entropy_with_logits(torch.rand(4, 1), torch.ones(4, 1)),
            ValueError,
            r'none in input of shape \(4, 1\); use scope="batch"',
        ),
        (lambda: max_pool(SHARES, mask=LABELS > 0), ValueError, r"one entry per pixel use mask.unsqueeze\(1\)"),
        (lambda: cross_entropy(LOGITS[:, :1], LABELS + 1), ValueError, "one logit per pixel use losspool.binary_cross"),
        (lambda: cross_entropy(LOGITS[:, :1], LABELS > 0), ValueError, "one logit per pixel, .* losspool.binary_cross"),
        (
            lambda: cross_entropy(LOGITS, LABELS.to("meta")),
            ValueError,
            r'on meta, .* on cpu; move it: target.to\("cpu"\)',
        ),
        (
            lambda: cross_entropy(LOGITS, LABELS, torch.ones(3).to("meta")),
            ValueError,
            r'move it: weight.to\("cpu"\), or the module that holds it: criterion.to\("cpu"\)',
        ),
        (lambda: upsampled_cross_entropy(LOGITS, SHARES[:, :2]), ValueError, r"got \(2, 3, 4, 5\) and \(2, 2, 4, 5\)"),
        (lambda: CrossEntropyLoss(3.0), ValueError, r"one dimension, one entry per class, got \(\)"),
        (lambda: cross_entropy(LOGITS, LABELS, torch.ones(3).long()), TypeError, r"int64; pass weight.float\(\)"),
        (lambda: cross_entropy(LOGITS, LABELS, ["1", "2", "3"]), TypeError, r"list of numbers, got \['1', '2', '3'\]"),
        (
            lambda: cross_entropy(LOGITS, F.one_hot(LABELS, 3)),
            ValueError,
            r"one-hot classes as probabilities: target.movedim\(-1, 1\).float\(\)",
        ),
        (
            lambda: upsampled_cross_entropy(LOGITS, F.one_hot(LABELS, 3).movedim(-1, 1)),
            ValueError,
            r"one-hot classes as probabilities: target.float\(\)",
        ),
        *(
            (lambda call=call: call(LOGITS[0], LABELS[0]), ValueError, r"input.unsqueeze\(0\), target.unsqueeze\(0\)")
            for call in (cross_entropy, upsampled_cross_entropy)
        ),
        (
            lambda: max_pool(SHARES[:, :2], mask=LABELS > 0),
            ValueError,
            r"or to the channels .* mask.unsqueeze\(1\)",
        ),
        (lambda: cross_entropy(LOGITS, LABELS, m="0px"), ValueError, "at least 1px, got '0px'"),
    ],
)
def test_messages_with_the_next_step(call, error, message):
    with pytest.raises(error, match=message):
        call()

"""One line is replaced, as a user would do it: the mean of torch's losses at p = ∞, and a gradient."""

import math

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from monai.data import MetaTensor
from monai.losses import DiceCELoss, DiceLoss
from omegaconf import OmegaConf
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from torchvision import tv_tensors

import losspool

PLAIN = {"p": math.inf, "scope": "batch"}


def trains(criterion, logits, target):
    """The value, after a step along its gradient made it smaller."""
    logits = logits.detach().requires_grad_()
    loss = criterion(logits, target)
    loss.backward()
    assert criterion(logits.detach() - 0.1 * logits.grad, target) < loss
    return loss.item()


@pytest.fixture
def logits():
    torch.manual_seed(0)
    return torch.randn(2, 3, 8, 8)


@pytest.fixture
def labels():
    return torch.randint(0, 3, (2, 1, 8, 8), generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize("kind", [torch.Tensor.clone, MetaTensor])
def test_monai_dice_with_cross_entropy(logits, labels, kind):
    logits, labels = kind(logits), kind(labels)
    own, swapped = (DiceCELoss(softmax=True, to_onehot_y=True) for _ in range(2))
    swapped.cross_entropy = losspool.CrossEntropyLoss(**PLAIN)
    assert trains(swapped, logits, labels) == pytest.approx(own(logits, labels).item(), rel=1e-6)
    swapped.cross_entropy = losspool.CrossEntropyLoss()
    dice = DiceLoss(softmax=True, to_onehot_y=True)(logits, labels).item()
    pooled = losspool.cross_entropy(torch.as_tensor(logits), torch.as_tensor(labels)).item()
    assert trains(swapped, logits, labels) == pytest.approx(dice + pooled, rel=1e-6)


@pytest.mark.parametrize("kind", [torch.Tensor.clone, MetaTensor])
def test_monai_bare_criterion_takes_float_labels(logits, labels, kind):
    expected = F.cross_entropy(logits, labels[:, 0].long()).item()
    assert trains(losspool.CrossEntropyLoss(**PLAIN), kind(logits), kind(labels)) == pytest.approx(expected, rel=1e-6)


def test_hydra_builds_it_from_yaml(logits, labels):
    text = "{_target_: losspool.CrossEntropyLoss, weight: [1, 2, 5], ignore_index: 255, p: .inf, m: 25%, scope: batch}"
    criterion = instantiate(OmegaConf.create(text))
    each = F.cross_entropy(logits, labels[:, 0].long(), torch.tensor([1.0, 2.0, 5.0]), reduction="none")
    assert trains(criterion, logits, labels) == pytest.approx(each.mean().item(), rel=1e-6)


def test_timm_mixup():
    torch.manual_seed(0)
    logits = torch.randn(8, 10)
    _, targets = Mixup(mixup_alpha=1.0, num_classes=10)(torch.zeros(8, 3, 4, 4), torch.randint(0, 10, (8,)))
    criterion = losspool.CrossEntropyLoss(**PLAIN)
    assert trains(criterion, logits, targets) == pytest.approx(SoftTargetCrossEntropy()(logits, targets).item())


def test_torchvision_masks(logits, labels):
    expected = F.cross_entropy(logits, labels[:, 0].long()).item()
    mask = tv_tensors.Mask(labels.to(torch.uint8))
    assert trains(losspool.CrossEntropyLoss(**PLAIN), logits, mask) == pytest.approx(expected, rel=1e-6)

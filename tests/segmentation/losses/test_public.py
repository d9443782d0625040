"""Losses that other packages have too, compared with theirs where these packages are installed."""

import pytest
import torch

from loss_batches import small_batch
from losspool.segmentation.losses import Criterion, LossConfig
from other_packages import import_torchvision

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages' imports


def package(name):
    import_torchvision()  # smp's dependency timm imports it
    return pytest.importorskip(name, reason=f"{name} is not installed; make test-frameworks has it")


def check(name, theirs, scope, logits, labels):
    ours = Criterion(LossConfig(name, scope=scope))(logits, labels).loss
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9, check_dtype=False)
    gradients = [torch.autograd.grad(each, logits)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-8)


def test_dice_of_smp():
    losses = package("segmentation_models_pytorch").losses
    logits, labels = small_batch()
    check("dice", losses.DiceLoss("multiclass", ignore_index=255)(logits, labels.long()), "batch", logits, labels)


@pytest.mark.parametrize("scope", ["image", "batch"])
def test_lovasz_of_smp(scope):
    """smp's takes float32."""
    losses = package("segmentation_models_pytorch").losses
    logits, labels = small_batch()
    lovasz = losses.LovaszLoss("multiclass", per_image=scope == "image", ignore_index=255)
    theirs = lovasz(logits.float(), labels.long())
    check("lovasz", theirs, scope, logits, labels)


@pytest.mark.parametrize("scope", ["image", "batch"])
def test_dice_of_monai(scope):
    """MONAI has no void."""
    losses = package("monai.losses")
    logits, labels = small_batch()
    labels[labels == 255] = 0
    batch = scope == "batch"
    dice = losses.DiceLoss(to_onehot_y=True, softmax=True, smooth_nr=0, smooth_dr=0, batch=batch)
    check("dice", dice(logits, labels.long()[:, None]), scope, logits, labels)


def test_dice_of_kornia():
    losses = package("kornia.losses")
    logits, labels = small_batch()
    theirs = losses.dice_loss(logits, labels.long(), average="macro", eps=0.0, ignore_index=255)
    check("dice", theirs, "image", logits, labels)


def test_lovasz_of_kornia():
    """kornia has no void, and counts each image by itself."""
    losses = package("kornia.losses")
    logits, labels = small_batch()
    labels[labels == 255] = 0
    check("lovasz", losses.lovasz_softmax_loss(logits, labels.long()), "image", logits, labels)


def test_focal_of_kornia():
    losses = package("kornia.losses")
    logits, labels = small_batch()
    pixels = losses.focal_loss(logits, labels.long(), alpha=None, gamma=2.0, ignore_index=255).sum(1)
    theirs = torch.stack([each[label != 255].mean() for each, label in zip(pixels, labels, strict=True)]).mean()
    check("focal", theirs, "image", logits, labels)

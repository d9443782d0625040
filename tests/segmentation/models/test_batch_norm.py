"""BatchNorm is frozen with pretrained weights, and learns without."""

import copy

import pytest
import torch
from torch import nn

from losspool.segmentation.models import build_model, synchronised
from losspool.segmentation.models.batch_norm import FrozenBatchNorm, freeze_batch_norm


def step(module, groups):
    """One step of training on noise."""
    optimizer = torch.optim.SGD(groups, lr=0.1, weight_decay=0.1)
    module.train()
    module(torch.randn(2, 3, 40, 40)).square().mean().backward()
    optimizer.step()


def norms(module):
    return {
        f"{name}.{key}": value.clone()
        for name, part in module.named_modules()
        if isinstance(part, (nn.BatchNorm2d, FrozenBatchNorm))
        for key, value in part.state_dict().items()
    }


def test_frozen_layers_stay_as_they_are():
    model = build_model("deeplabv2_resnet18", 4, batch_norm="frozen")
    before, conv = norms(model.module), model.module.backbone.layer4[1].conv2.weight.clone()
    assert len(before) == 5 * 20
    step(model.module, model.parameter_groups(0.1))
    after = norms(model.module)
    assert all(torch.equal(value, after[key]) for key, value in before.items())
    assert not torch.equal(conv, model.module.backbone.layer4[1].conv2.weight)
    layers = [part for part in model.module.modules() if isinstance(part, (nn.BatchNorm2d, FrozenBatchNorm))]
    assert not any(layer.training or layer.weight.requires_grad or layer.bias.requires_grad for layer in layers)
    assert model.module.training


def test_without_weights_they_learn():
    model = build_model("deeplabv2_resnet18", 4)
    before = norms(model.module)
    step(model.module, model.parameter_groups(0.1))
    after = norms(model.module)
    moved = [key for key, value in before.items() if not torch.equal(value, after[key])]
    assert len(moved) == len(before)
    assert not model.spec.frozen_bn


def test_freezing_changes_neither_keys_nor_outputs():
    model = build_model("deeplabv2_mobilenetv2", 3).module
    step(model, model.parameters())
    frozen = copy.deepcopy(model)
    assert freeze_batch_norm(frozen) == 51
    assert freeze_batch_norm(frozen) == 0
    assert list(frozen.state_dict()) == list(model.state_dict())
    x = torch.randn(1, 3, 33, 33)
    with torch.no_grad():
        expected = model.eval()(x)
        assert torch.equal(frozen.train()(x), expected)
        assert torch.equal(copy.deepcopy(frozen).train()(x), expected)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm1d(3), (4, 3)),
        (nn.BatchNorm3d(3, affine=False), (2, 3, 2, 2, 2)),
        (nn.SyncBatchNorm(3), (2, 3, 4, 4)),
    ],
    ids=["1d", "3d", "sync"],
)
def test_other_batch_norms_of_a_users_model(layer, shape):
    model = nn.Sequential(nn.Identity(), layer)
    layer.running_mean.normal_()
    x = torch.randn(shape)
    expected = model.eval()(x)
    assert freeze_batch_norm(model) == 1
    assert isinstance(model[1], FrozenBatchNorm)
    assert torch.equal(model.train()(x), expected)


def test_synchronised_layers_take_the_place_of_trained_ones():
    """The conversion only: torch runs such a layer in training on GPUs alone."""
    model = build_model("deeplabv2_resnet18", 4, batch_norm="sync")
    parameters = list(model.module.parameters())
    layers = sum(type(part) is nn.BatchNorm2d for part in model.module.modules())
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    expected = model.module.eval()(torch.ones(1, 3, 40, 40))
    found = synchronised(model, torch.device("cuda"))
    assert sum(isinstance(part, nn.SyncBatchNorm) for part in found.module.modules()) == layers == 20
    assert not any(type(part) is nn.BatchNorm2d for part in found.module.modules())
    assert all(one is other for one, other in zip(found.module.parameters(), parameters, strict=True))
    assert list(found.module.state_dict()) == list(before)
    assert all(torch.equal(value, before[key]) for key, value in found.module.state_dict().items())
    torch.testing.assert_close(found.module.eval()(torch.ones(1, 3, 40, 40)), expected)
    assert found.spec == build_model("deeplabv2_resnet18", 4, batch_norm="train").spec  # predicting needs no GPU

"""Levels of the backbones, and decoders that compute what plain functional calls on their state dict compute."""

import pytest
import torch
import torch.nn.functional as F

from losspool.segmentation.models import build_model
from losspool.segmentation.models.mobilenet import MobileNetV2
from losspool.segmentation.models.resnet import ResNet
from segmentation.models import plain
from segmentation.models.test_networks import NETWORKS, close

LEVEL_STRIDES = {8: (4, 8, 8, 8), 16: (4, 8, 16, 16), 32: (4, 8, 16, 32)}


def without_classifier(state, module):
    return {key: value for key, value in state.items() if not key.startswith(module.classifier)}


@pytest.mark.parametrize("output_stride", [8, 16, 32])
@pytest.mark.parametrize(
    ("name", "build"), [("mobilenetv2", MobileNetV2), ("resnet18", lambda stride: ResNet(18, stride))]
)
def test_dilated_levels_are_those_of_the_strided_network(name, build, output_stride):
    """Level by level, at the positions of the strided network; the last level is what forward returns."""
    strided, dilated = build(32).eval(), build(output_stride).eval()
    state = plain.random_state(NETWORKS[name][1])
    for module in (strided, dilated):
        module.load_state_dict(without_classifier(state, module))
    x = torch.randn(1, 3, 97, 66)
    with torch.no_grad():
        levels, truths = dilated.levels(x), strided.levels(x)
        assert torch.equal(levels[-1], dilated(x))
    assert dilated.strides == LEVEL_STRIDES[output_stride]
    assert tuple(level.shape[1] for level in levels) == dilated.channels
    for level, stride, truth, full in zip(levels, dilated.strides, truths, (4, 8, 16, 32), strict=True):
        assert level.shape[2:] == (-(-97 // stride), -(-66 // stride))
        close(level[:, :, :: full // stride, :: full // stride], truth)


def unit(state, name, x, first=0):
    """1×1 convolution, BatchNorm, ReLU, under the keys ``first`` and ``first + 1``."""
    return F.relu(plain.batch_norm(state, f"{name}.{first + 1}", F.conv2d(x, state[f"{name}.{first}.weight"])))


def separable(state, name, x, rate=1):
    kernel = state[f"{name}.0.weight"]
    return unit(state, name, F.conv2d(x, kernel, padding=rate, dilation=rate, groups=x.shape[1]), first=1)


def pooled(state, name, x):
    return F.conv2d(F.adaptive_avg_pool2d(x, 1), state[f"{name}.weight"], state[f"{name}.bias"])


def laid_over(x, level, factor):
    """Enlarged by a whole factor, so that cells keep their places, then cut: an image may end inside a cell."""
    x = F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False) if factor > 1 else x
    return x[:, :, : level.shape[2], : level.shape[3]]


def fpn(state, levels, output_stride):
    strides = LEVEL_STRIDES[output_stride]
    y = pooled(state, "pool", levels[3]).expand(-1, -1, *levels[3].shape[2:])
    for index in (3, 2, 1, 0):
        y = laid_over(y, levels[index], strides[index + 1] // strides[index]) if index < 3 else y
        y = y + F.conv2d(levels[index], state[f"lateral.{index}.weight"])
        y = separable(state, f"mix.{index}.2", F.relu(plain.batch_norm(state, f"mix.{index}.0", y)))
    return F.conv2d(y, state["classifier.weight"], state["classifier.bias"])


def deeplabv3plus(state, levels, output_stride):
    low, high = levels[0], levels[3]
    rates = {16: (6, 12, 18), 8: (12, 24, 36)}[output_stride]
    parts = [unit(state, "aspp.branches.0", high)]
    parts += [separable(state, f"aspp.branches.{index}", high, rate) for index, rate in enumerate(rates, 1)]
    parts += [F.relu(pooled(state, "aspp.pool", high)).expand(-1, -1, *high.shape[2:])]
    high = laid_over(unit(state, "aspp.mix", torch.cat(parts, 1)), low, output_stride // 4)
    y = torch.cat([high, unit(state, "low", low)], 1)
    y = separable(state, "decoder.1", separable(state, "decoder.0", y))
    return F.conv2d(y, state["classifier.weight"], state["classifier.bias"])


@pytest.mark.parametrize(
    ("name", "forward", "output_stride"),
    [
        *[("fpn_resnet18", fpn, 32), ("fpn_mobilenetv2", fpn, 32), ("fpn_mobilenetv2", fpn, 8)],
        *[("deeplabv3plus_resnet18", deeplabv3plus, 16), ("deeplabv3plus_mobilenetv2", deeplabv3plus, 8)],
    ],
)
def test_a_decoder_equals_the_plain_one(name, forward, output_stride):
    module = build_model(name, 4, output_stride=output_stride).module.eval()
    shapes = {key: tuple(value.shape) for key, value in module.state_dict().items() if not key.startswith("backbone")}
    state = plain.random_state(shapes)
    module.load_state_dict(state, strict=False)
    backbone = plain.random_state(NETWORKS[name.split("_")[1]][1])
    module.backbone.load_state_dict(without_classifier(backbone, module.backbone))
    x = torch.randn(2, 3, 197, 166)  # no multiple of any stride
    with torch.no_grad():
        close(module(x), forward(state, module.backbone.levels(x), output_stride))


@pytest.mark.parametrize("head", ["deeplabv3plus", "fpn"])
def test_a_batch_of_one_image_trains(head):
    """Image pooling leaves one value per channel, of which BatchNorm has no variance."""
    model = build_model(f"{head}_resnet18", 3)
    model.dry_run(40, 40, batch=1)
    model.module.train()(torch.randn(1, 3, 40, 40)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.module.parameters())


@pytest.mark.parametrize("name", ["deeplabv2_resnet18", "deeplabv3plus_resnet18", "fpn_mobilenetv2"])
def test_groups_are_the_backbone_and_all_of_the_head(name):
    model = build_model(name, 3)
    backbone, head = model.parameter_groups(0.1, 5)
    assert {id(each) for each in backbone["params"]} == {id(each) for each in model.module.backbone.parameters()}
    assert len(backbone["params"]) + len(head["params"]) == len(list(model.module.parameters()))
    assert head["lr"] == 0.5


@pytest.mark.parametrize("name", ["deeplabv3plus_resnet18", "fpn_mobilenetv2"])
def test_pretrained_weights_fill_the_backbone_of_every_head(name, tmp_path):
    keys = NETWORKS[name.split("_")[1]][1]
    state = plain.random_state(keys)
    torch.save(state, tmp_path / "weights.pth")
    model = build_model(name, 3, weights=tmp_path / "weights.pth")
    loaded = model.module.backbone.state_dict()
    assert loaded.keys() == without_classifier(state, model.module.backbone).keys()
    assert all(torch.equal(value, state[key]) for key, value in loaded.items())
    assert set(model.report.fresh) == {name for name, _ in model.module.named_children()} - {"backbone"}
    assert model.spec.frozen_bn
    assert not build_model(name, 3, weights=tmp_path / "weights.pth", batch_norm="train").spec.frozen_bn

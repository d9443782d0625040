"""The published networks once more: key names by loops, forward passes by functional calls on a state dict.

Written from torchvision's and deeplab-pytorch's published structure, and from nothing in the package.
"""

import math

import torch
import torch.nn.functional as F

RESNET_BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}

# Per stage: stride of the first block, dilation of its strided 3×3, dilation of all 3×3 behind that one.
RESNET_PLANS = {
    32: ((1, 1, 1), (2, 1, 1), (2, 1, 1), (2, 1, 1)),
    16: ((1, 1, 1), (2, 1, 1), (2, 1, 1), (1, 1, 2)),
    8: ((1, 1, 1), (2, 1, 1), (1, 1, 2), (1, 2, 4)),
}

# Inputs, outputs and expansion of features.1 to features.17
MOBILENET_BLOCKS = [(32, 16, 1), (16, 24, 6), (24, 24, 6), (24, 32, 6), (32, 32, 6), (32, 32, 6), (32, 64, 6)]
MOBILENET_BLOCKS += [(64, 64, 6), (64, 64, 6), (64, 64, 6), (64, 96, 6), (96, 96, 6), (96, 96, 6), (96, 160, 6)]
MOBILENET_BLOCKS += [(160, 160, 6), (160, 160, 6), (160, 320, 6)]

# Strided blocks, and the dilation of the dilated ones
MOBILENET_PLANS = {
    32: ({2, 4, 7, 14}, {}),
    16: ({2, 4, 7}, {15: 2, 16: 2, 17: 2}),
    8: ({2, 4}, {8: 2, 9: 2, 10: 2, 11: 2, 12: 2, 13: 2, 14: 2, 15: 4, 16: 4, 17: 4}),
}


def bn_keys(name, channels):
    shapes = {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}
    return shapes | {f"{name}.num_batches_tracked": ()}


def torchvision_resnet_keys(depth):
    shapes = {"conv1.weight": (64, 3, 7, 7), **bn_keys("bn1", 64)}
    inputs = 64
    for stage, count in enumerate(RESNET_BLOCKS[depth], 1):
        width = 32 * 2**stage
        outputs = width if depth == 18 else 4 * width
        for block in range(count):
            name = f"layer{stage}.{block}"
            if depth == 18:
                kernels = [(width, inputs, 3, 3), (width, width, 3, 3)]
            else:
                kernels = [(width, inputs, 1, 1), (width, width, 3, 3), (outputs, width, 1, 1)]
            for index, kernel in enumerate(kernels, 1):
                shapes[f"{name}.conv{index}.weight"] = kernel
                shapes |= bn_keys(f"{name}.bn{index}", kernel[0])
            if inputs != outputs:
                shapes[f"{name}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= bn_keys(f"{name}.downsample.1", outputs)
            inputs = outputs
    return shapes | {"fc.weight": (1000, inputs), "fc.bias": (1000,)}


def torchvision_mobilenet_keys():
    shapes = {"features.0.0.weight": (32, 3, 3, 3), **bn_keys("features.0.1", 32)}
    for index, (inputs, outputs, expansion) in enumerate(MOBILENET_BLOCKS, 1):
        name, width, at = f"features.{index}.conv", inputs * expansion, 0
        if expansion > 1:
            shapes |= {f"{name}.0.0.weight": (width, inputs, 1, 1), **bn_keys(f"{name}.0.1", width)}
            at = 1
        shapes |= {f"{name}.{at}.0.weight": (width, 1, 3, 3), **bn_keys(f"{name}.{at}.1", width)}
        shapes |= {f"{name}.{at + 1}.weight": (outputs, width, 1, 1), **bn_keys(f"{name}.{at + 2}", outputs)}
    shapes |= {"features.18.0.weight": (1280, 320, 1, 1), **bn_keys("features.18.1", 1280)}
    return shapes | {"classifier.1.weight": (1000, 1280), "classifier.1.bias": (1000,)}


def deeplab_pytorch_keys(num_classes, prefix="base."):
    """ResNet-101 with ASPP; ``num_classes=None`` is the COCO initialisation, with a 1×1 head for 91 classes."""
    shapes = {"layer1.conv1.conv.weight": (64, 3, 7, 7), **bn_keys("layer1.conv1.bn", 64)}
    inputs = 64
    for stage, count in zip(range(2, 6), (3, 4, 23, 3), strict=True):
        outputs = 64 * 2**stage
        width = outputs // 4
        for block in range(1, count + 1):
            units = {
                "reduce": (width, inputs, 1, 1),
                "conv3x3": (width, width, 3, 3),
                "increase": (outputs, width, 1, 1),
            }
            if block == 1:
                units["shortcut"] = (outputs, inputs, 1, 1)
            for unit, kernel in units.items():
                name = f"layer{stage}.block{block}.{unit}"
                shapes |= {f"{name}.conv.weight": kernel, **bn_keys(f"{name}.bn", kernel[0])}
            inputs = outputs
    if num_classes is None:
        shapes |= {"fc.weight": (91, 2048, 1, 1), "fc.bias": (91,)}
    else:
        for branch in range(4):
            shapes |= {f"aspp.c{branch}.weight": (num_classes, 2048, 3, 3), f"aspp.c{branch}.bias": (num_classes,)}
    return {prefix + key: shape for key, shape in shapes.items()}


def parameters_of(shapes):
    """How many numbers are learned."""
    buffers = ("running_mean", "running_var", "num_batches_tracked")
    return sum(math.prod(shape) for key, shape in shapes.items() if not key.endswith(buffers))


def random_state(shapes, seed=0):
    """Random tensors, BatchNorm statistics among them, under which activations keep their size."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for key, shape in shapes.items():
        if key.endswith("num_batches_tracked"):
            state[key] = torch.tensor(7)
        elif len(shape) > 1:
            state[key] = torch.randn(shape, generator=generator) * math.sqrt(2 / math.prod(shape[1:]))
        elif key.endswith(("running_var", "weight")):
            state[key] = torch.rand(shape, generator=generator) * 0.5 + (0.75 if key.endswith("running_var") else 0.25)
        else:
            state[key] = torch.randn(shape, generator=generator) * 0.1
    return state


def batch_norm(state, name, x):
    mean, variance, weight, bias = (
        state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=1e-5)


def torchvision_resnet(state, x, depth, output_stride):
    """The features before the average pooling."""

    def conv_bn(x, conv, bn, stride=1, dilation=1):
        kernel = state[f"{conv}.weight"]
        x = F.conv2d(x, kernel, stride=stride, padding=dilation * (kernel.shape[-1] // 2), dilation=dilation)
        return batch_norm(state, bn, x)

    x = F.max_pool2d(F.relu(conv_bn(x, "conv1", "bn1", 2)), 3, 2, 1)
    for stage, count in enumerate(RESNET_BLOCKS[depth], 1):
        first_stride, first_dilation, dilation = RESNET_PLANS[output_stride][stage - 1]
        for block in range(count):
            name = f"layer{stage}.{block}"
            stride, before = (first_stride, first_dilation) if block == 0 else (1, dilation)
            if depth == 18:
                y = F.relu(conv_bn(x, f"{name}.conv1", f"{name}.bn1", stride, before))
                y = conv_bn(y, f"{name}.conv2", f"{name}.bn2", 1, dilation)
            else:
                y = F.relu(batch_norm(state, f"{name}.bn1", F.conv2d(x, state[f"{name}.conv1.weight"])))
                y = F.relu(conv_bn(y, f"{name}.conv2", f"{name}.bn2", stride, before))
                y = batch_norm(state, f"{name}.bn3", F.conv2d(y, state[f"{name}.conv3.weight"]))
            if f"{name}.downsample.0.weight" in state:
                x = F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
                x = batch_norm(state, f"{name}.downsample.1", x)
            x = F.relu(x + y)
    return x


def torchvision_mobilenet(state, x, output_stride):
    """The 320 features before the last 1×1."""
    strided, dilations = MOBILENET_PLANS[output_stride]
    x = F.conv2d(x, state["features.0.0.weight"], stride=2, padding=1)
    x = F.relu6(batch_norm(state, "features.0.1", x))
    for index, (inputs, outputs, expansion) in enumerate(MOBILENET_BLOCKS, 1):
        name, y, at = f"features.{index}.conv", x, 0
        if expansion > 1:
            y = F.relu6(batch_norm(state, f"{name}.0.1", F.conv2d(y, state[f"{name}.0.0.weight"])))
            at = 1
        stride, dilation = 2 if index in strided else 1, dilations.get(index, 1)
        kernel = state[f"{name}.{at}.0.weight"]
        y = F.conv2d(y, kernel, stride=stride, padding=dilation, dilation=dilation, groups=inputs * expansion)
        y = F.relu6(batch_norm(state, f"{name}.{at}.1", y))
        y = batch_norm(state, f"{name}.{at + 2}", F.conv2d(y, state[f"{name}.{at + 1}.weight"]))
        x = x + y if inputs == outputs else y
    return x


def torchvision_mobilenet_classes(state, features):
    """The 1,000 scores from the 320 features."""
    x = F.relu6(batch_norm(state, "features.18.1", F.conv2d(features, state["features.18.0.weight"])))
    return F.linear(x.mean((2, 3)), state["classifier.1.weight"], state["classifier.1.bias"])


def deeplab_pytorch(state, x, prefix="base."):
    """Coarse logits of one scale of DeepLabV2-ResNet101."""
    state = {key.removeprefix(prefix): value for key, value in state.items()}

    def unit(x, name, stride=1, padding=0, dilation=1):
        x = F.conv2d(x, state[f"{name}.conv.weight"], stride=stride, padding=padding, dilation=dilation)
        return batch_norm(state, f"{name}.bn", x)

    x = F.relu(unit(x, "layer1.conv1", stride=2, padding=3))
    x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1, ceil_mode=True)
    for stage, count, first_stride, dilation in ((2, 3, 1, 1), (3, 4, 2, 1), (4, 23, 1, 2), (5, 3, 1, 4)):
        for block in range(1, count + 1):
            name, stride = f"layer{stage}.block{block}", first_stride if block == 1 else 1
            y = F.relu(unit(x, f"{name}.reduce", stride=stride))
            y = F.relu(unit(y, f"{name}.conv3x3", padding=dilation, dilation=dilation))
            y = unit(y, f"{name}.increase")
            x = F.relu(y + (unit(x, f"{name}.shortcut", stride=stride) if block == 1 else x))
    branches = zip("0123", (6, 12, 18, 24), strict=True)
    return sum(aspp_branch(state, x, f"aspp.c{branch}", rate) for branch, rate in branches)


def aspp_branch(state, x, name, rate):
    return F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], padding=rate, dilation=rate)

"""Shapes, sizes, and the same numbers as independently written plain networks."""

import pytest
import torch

import losspool
from losspool.segmentation.models import MODELS, build_model, enlarge
from losspool.segmentation.models.deeplab import ASPP, DeepLabV2
from losspool.segmentation.models.mobilenet import MobileNetV2
from losspool.segmentation.models.network import ALIGN_CORNERS
from losspool.segmentation.models.resnet import ResNet
from losspool.segmentation.models.spec import HEADS
from segmentation.models import plain

NETWORKS = {
    **{
        f"resnet{depth}": (
            lambda stride, depth=depth: ResNet(depth, stride),
            plain.torchvision_resnet_keys(depth),
            lambda state, x, stride, depth=depth: plain.torchvision_resnet(state, x, depth, stride),
        )
        for depth in (18, 50, 101)
    },
    "mobilenetv2": (MobileNetV2, plain.torchvision_mobilenet_keys(), plain.torchvision_mobilenet),
}


def close(ours, truth):
    assert torch.isfinite(truth).all()
    assert truth.abs().max() > 1e-3
    torch.testing.assert_close(ours, truth, rtol=0, atol=1e-4 * float(truth.abs().max()))


# By hand, through every stride: 64 -> 32 -> 16 -> 8 -> 4, and with a pooling that rounds up 64 -> 32 -> 17 -> 9 -> 5.
SIZES = {
    ("torchvision", 4): {64: 16, 65: 17, 97: 25, 100: 25, 321: 81, 550: 138},
    ("caffe", 4): {64: 17, 65: 17, 97: 25, 100: 26, 321: 81, 550: 138},
    ("torchvision", 8): {64: 8, 65: 9, 97: 13, 100: 13, 321: 41, 550: 69},
    ("torchvision", 16): {64: 4, 65: 5, 97: 7, 100: 7, 321: 21, 550: 35},
    ("caffe", 8): {64: 9, 65: 9, 97: 13, 100: 13, 321: 41, 550: 69},
    ("caffe", 16): {64: 5, 65: 5, 97: 7, 100: 7, 321: 21, 550: 35},
}
CASES = [
    (name, variant, stride)
    for name, (head, backbone) in MODELS.items()
    for variant in backbone.variants
    for stride in head.output_strides
    # A large backbone differs from a small one in nothing that a head sees but its channels, and ResNet-101 has the
    # blocks of ResNet-50, only more of them.
    if name.endswith(("resnet18", "mobilenetv2"))
    or (stride == head.output_strides[0] and (name.startswith("deeplabv2") or not name.endswith("resnet101")))
]


@pytest.mark.parametrize(("name", "variant", "output_stride"), CASES)
def test_output_sizes(name, variant, output_stride):
    with torch.device("meta"):  # shapes without arithmetic
        model = build_model(name, 5, output_stride=output_stride, variant=variant)
        assert model.spec.logit_stride == (output_stride if name.startswith("deeplabv2") else 4)
        sizes, module = SIZES[variant, model.spec.logit_stride], model.module.eval()
        # Rounding depends on the strides alone: ResNet-18 sees all sizes, the others one pair.
        for height, width in ((64, 65), (97, 100), (321, 550)) if name.endswith("resnet18") else ((65, 100),):
            assert module(torch.empty(2, 3, height, width)).shape == (2, 5, sizes[height], sizes[width])


def test_a_network_has_its_papers_output_stride_unless_another_is_named():
    with torch.device("meta"):
        found = {head: build_model(f"{head}_resnet18", 2).spec.output_stride for head in HEADS}
    assert found == {"deeplabv2": 8, "deeplabv3plus": 16, "fpn": 32}


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "published", "classifier", "channels"),
    [
        ("resnet18", 11_689_512, 513_000, 512),
        ("resnet50", 25_557_032, 2_049_000, 2048),
        ("resnet101", 44_549_160, 2_049_000, 2048),
        ("mobilenetv2", 3_504_872, 1_281_000 + 412_160, 320),  # with the last 1×1, which serves the classifier alone
    ],
)
def test_parameter_counts_are_the_published_ones(name, published, classifier, channels):
    _, keys, _ = NETWORKS[name]
    assert plain.parameters_of(keys) == published
    with torch.device("meta"):
        module = build_model(f"deeplabv2_{name}", 21).module
    assert isinstance(module, DeepLabV2)
    assert parameters(module.backbone) == published - classifier
    assert parameters(module.aspp) == 4 * 21 * (9 * channels + 1)


def test_the_whole_model_has_as_many_parameters_as_deeplab_pytorch():
    with torch.device("meta"):
        module = build_model("deeplabv2_resnet101", 21).module
    assert parameters(module) == plain.parameters_of(plain.deeplab_pytorch_keys(21)) == 44_048_532


@pytest.mark.parametrize(
    ("name", "output_stride"),
    # ResNet-101 has the blocks of ResNet-50 at every stride, only more of them.
    [(name, stride) for name in NETWORKS for stride in ((8,) if name == "resnet101" else (8, 16, 32))],
)
def test_features_equal_the_plain_network(name, output_stride):
    build, keys, forward = NETWORKS[name]
    state = plain.random_state(keys)
    module = build(output_stride).eval()
    module.load_state_dict({key: value for key, value in state.items() if not key.startswith(module.classifier)})
    x = torch.randn(1, 3, 65, 50)
    with torch.no_grad():
        close(module(x), forward(state, x, output_stride))


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("resnet18", lambda stride: ResNet(18, stride)),
        ("resnet50", lambda stride: ResNet(50, stride)),
        ("resnet50", lambda stride: ResNet(50, stride, "caffe")),
        ("mobilenetv2", MobileNetV2),
    ],
    ids=["resnet18", "resnet50", "resnet50-caffe", "mobilenetv2"],
)
def test_dilation_computes_what_the_stride_computes(name, build):
    """À trous: at the positions that the strided network visits, the dilated one gives the same."""
    state = plain.random_state(NETWORKS[name][1])
    x = torch.randn(1, 3, 97, 66)
    outputs = {}
    for stride in (8, 16, 32):
        module = build(stride).eval()
        module.load_state_dict({key: value for key, value in state.items() if not key.startswith(module.classifier)})
        with torch.no_grad():
            outputs[stride] = module(x)
    close(outputs[16][:, :, ::2, ::2], outputs[32])
    close(outputs[8][:, :, ::4, ::4], outputs[32])


@pytest.mark.parametrize(("output_stride", "rates"), [(8, (6, 12, 18, 24)), (16, (3, 6, 9, 12))])
def test_the_head_sums_four_branches(output_stride, rates):
    head = build_model("deeplabv2_mobilenetv2", 3, output_stride=output_stride).module.aspp
    assert isinstance(head, ASPP)
    for key, value in head.state_dict().items():
        assert float(value.std()) == pytest.approx(0.01, rel=0.05) if key.endswith("weight") else not value.any()
    state = {key: torch.randn(value.shape) for key, value in head.state_dict().items()}
    head.load_state_dict(state)
    x = torch.randn(2, 320, 9, 30)  # wide enough for the widest branch to reach
    branches = (plain.aspp_branch(state, x, f"branches.{index}", rate) for index, rate in enumerate(rates))
    close(head(x), sum(branches))


def test_enlargement_is_bilinear_between_the_middles_of_cells():
    assert ALIGN_CORNERS is False  # recipes and checkpoints rely on it
    cells = torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    whole = [0, 0, 0.125, 0.375, 0.625, 0.875, 1, 1]
    assert enlarge(cells, (1, 8), None)[0, 0, 0].tolist() == whole
    for width in range(1, 9):  # with a stride an image ends within a cell
        assert enlarge(cells, (1, width), 4)[0, 0, 0].tolist() == whole[:width]


def test_the_loss_enlarges_as_predictions_do():
    logits, target = torch.randn(2, 4, 5, 6), torch.randint(4, (2, 33, 40))
    loss = losspool.upsampled_cross_entropy(logits, target, align_corners=ALIGN_CORNERS)
    torch.testing.assert_close(loss, losspool.cross_entropy(enlarge(logits, (33, 40), None), target))


@pytest.mark.parametrize("build", [lambda: ResNet(34), lambda: ResNet(18, 4), lambda: ResNet(18, 8, "pytorch")])
def test_resnet_refuses(build):
    with pytest.raises(ValueError, match="got"):
        build()


def test_mobilenet_and_deeplab_refuse():
    with pytest.raises(ValueError, match="torchvision, got 'caffe'"):
        MobileNetV2(8, "caffe")
    with pytest.raises(ValueError, match="got 32"):
        DeepLabV2(MobileNetV2(32), 2)

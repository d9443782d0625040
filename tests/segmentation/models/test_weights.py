"""Files of weights: published layouts load with no key left over, and anything else is refused in one sentence."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.models import ModelSpec, build_from_spec, build_model
from losspool.segmentation.models.batch_norm import FrozenBatchNorm
from losspool.segmentation.models.deeplab import DeepLabV2
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET
from losspool.segmentation.models.resnet import ResNet
from losspool.segmentation.models.weights import load_deeplab_pytorch, read_weights, recognise
from segmentation.models import plain
from segmentation.models.test_networks import close
from shared_data import shared_data

TORCHVISION = {
    **{f"resnet{depth}": plain.torchvision_resnet_keys(depth) for depth in (18, 50, 101)},
    "mobilenetv2": plain.torchvision_mobilenet_keys(),
}


@pytest.fixture(autouse=True)
def _delete_large_files(tmp_path):
    """pytest keeps the folders of three runs."""
    yield
    for path in tmp_path.glob("*.*"):
        if path.is_file():
            path.unlink()


def saved(path, content):
    save_file(content, path) if path.suffix == ".safetensors" else torch.save(content, path)
    return path


def is_frozen(module):
    return any(isinstance(part, FrozenBatchNorm) for part in module.modules())


@pytest.mark.parametrize("name", TORCHVISION)
def test_torchvision_layout_fills_the_backbone(name, tmp_path):
    state = plain.random_state(TORCHVISION[name])
    model = build_model(f"deeplabv2_{name}", 4, weights=saved(tmp_path / "weights.pth", state))
    loaded = model.module.backbone.state_dict()
    head = {key for key in state if key.startswith(("fc.", "classifier.", "features.18."))}
    assert set(loaded) == set(state) - head
    assert all(torch.equal(value, state[key]) for key, value in loaded.items())
    assert (model.spec.variant, model.spec.preprocessing) == ("torchvision", IMAGENET)
    assert model.spec.frozen_bn
    assert is_frozen(model.module)
    assert set(model.report.dropped) == head
    assert model.report.fresh == ("aspp",)
    assert model.report.loaded == len(loaded)


def test_deeplab_pytorch_layout_fills_the_whole_model(tmp_path):
    state = plain.random_state(plain.deeplab_pytorch_keys(5))
    path = saved(tmp_path / "weights.pth", state)
    model = build_model("deeplabv2_resnet101", 5, weights=path)
    assert (model.spec.variant, model.spec.preprocessing) == ("caffe", CAFFE)
    assert is_frozen(model.module)
    assert model.report.dropped == model.report.fresh == ()
    assert model.report.loaded == len(state) == len(model.module.state_dict())
    model.module.eval()
    x, even = torch.randn(2, 3, 65, 50), torch.randn(1, 3, 64, 64)  # at 64 the pooling that rounds up shows
    with torch.no_grad():
        close(model.module(x), plain.deeplab_pytorch(state, x))
        truth = plain.deeplab_pytorch(state, even)
        close(model.module(even), truth)

        path.unlink()  # a checkpoint needs it no longer
        again = build_from_spec(ModelSpec.from_dict(json.loads(json.dumps(model.spec.to_dict()))))
        again.module.load_state_dict(model.module.state_dict())
        assert again.spec.preprocessing == CAFFE
        close(again.module.train()(even), truth)  # train: BatchNorm is frozen here too


def deeplab(num_classes):
    return DeepLabV2(ResNet(101, 8, "caffe"), num_classes)


def test_deeplab_pytorch_layout_without_the_multi_scale_wrapper():
    state = plain.random_state(plain.deeplab_pytorch_keys(5, prefix=""))
    model = deeplab(5)
    report = load_deeplab_pytorch(model, state, "w.pth")
    assert report.loaded == len(state) == len(model.state_dict())
    assert torch.equal(model.aspp.branches[3].bias, state["aspp.c3.bias"])


def test_a_head_for_other_classes_is_left_fresh():
    state = plain.random_state(plain.deeplab_pytorch_keys(21))
    model = deeplab(5)
    report = load_deeplab_pytorch(model, state, "voc.pth")
    assert torch.equal(model.backbone.conv1.weight, state["base.layer1.conv1.conv.weight"])
    assert float(model.aspp.branches[0].weight.detach().std()) == pytest.approx(0.01, rel=0.05)
    assert str(report) == (
        "voc.pth: 624 tensors loaded (deeplab-pytorch layout), aspp.c0.weight, aspp.c0.bias, "
        "aspp.c1.weight, aspp.c1.bias, aspp.c2.weight and 3 more dropped, "
        "aspp randomly initialised: the file has 21 classes, the model 5"
    )


def test_the_coco_initialisation_has_another_head():
    state = plain.random_state(plain.deeplab_pytorch_keys(None, prefix=""))
    model = deeplab(91)
    report = load_deeplab_pytorch(model, state, "coco.pth")
    assert report.dropped == ("fc.weight", "fc.bias")
    assert str(report).endswith("fc.weight, fc.bias dropped, aspp randomly initialised: the file has none")
    assert torch.equal(model.backbone.layer3[22].bn3.running_var, state["layer4.block23.increase.bn.running_var"])


def test_the_real_mobilenet_loads_and_recognises_a_bus():
    path = shared_data("weights", "mobilenet_v2-b0353104.pth")
    frame = shared_data("voc-three-frames", "VOCdevkit", "VOC2012", "JPEGImages", "2011_000025.jpg")
    model = build_model("deeplabv2_mobilenetv2", 11, weights=path)
    state = read_weights(path)
    assert model.report.loaded == len(state) - 8
    assert {key.split(".")[0] + key.split(".")[1] for key in model.report.dropped} == {"classifier1", "features18"}
    images = torch.from_numpy(np.array(Image.open(frame)))[None]
    x = model.spec.preprocessing.apply(images)
    with torch.no_grad():
        features = plain.torchvision_mobilenet(state, x, 8)
        close(model.module.train().backbone(x), features)
        # features at stride 8 classify much as those at stride 32 do
        scores = plain.torchvision_mobilenet_classes(state, features)
    assert scores.argmax() == 654  # ImageNet's minibus; the frame's label says bus


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_every_suffix_reads_the_same(suffix, tmp_path):
    state = {"a.weight": torch.randn(3, 2), "a.num_batches_tracked": torch.tensor(3)}
    read = read_weights(saved(tmp_path / f"w{suffix}", state))
    assert set(read) == set(state)
    assert all(torch.equal(read[key], value) for key, value in state.items())


@pytest.mark.parametrize("name", ["state_dict", "model"])
def test_wrapped_states_are_unwrapped(name, tmp_path):
    weight = torch.nn.Parameter(torch.ones(2))
    read = read_weights(saved(tmp_path / "w.pth", {"epoch": 3, name: {"module.a": weight, "module.b": weight}}))
    assert set(read) == {"a", "b"}
    assert not read["a"].requires_grad


class Payload:
    """Runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("how", ["zip", "legacy", "bare", "new", "model"])
def test_pickled_code_is_refused_and_not_run(how, tmp_path):
    path, marker = tmp_path / "evil.pth", tmp_path / "it-ran"
    content = {"conv1.weight": torch.ones(1), "x": Payload(marker)}
    if how in ("bare", "new"):
        path.write_bytes(pickle.dumps(content["x"], protocol=2 if how == "bare" else 4))
    elif how == "model":
        torch.save(torch.nn.Linear(2, 2), path)
    else:
        torch.save(content, path, _use_new_zipfile_serialization=how == "zip")
    with pytest.raises(UserError, match=r"evil\.pth: (refused, it asks for \S+|.* something other than tensors)"):
        read_weights(path)
    assert not marker.exists()


def broken(path):
    """Files that are not weights."""
    torch.save({"a": torch.randn(100)}, path / "whole.pth")
    save_file({"a": torch.randn(100)}, path / "whole.safetensors")
    for suffix in (".pth", ".safetensors"):
        content = (path / f"whole{suffix}").read_bytes()
        (path / f"half{suffix}").write_bytes(content[: len(content) // 2])
        (path / f"empty{suffix}").write_bytes(b"")
        (path / f"text{suffix}").write_bytes(b"not a tensor in sight")
    (path / "weights.onnx").write_bytes(b"")
    (path / "folder.pth").mkdir()
    torch.save({}, path / "nothing.pth")
    torch.save([torch.ones(1)], path / "list.pth")
    torch.save({"a": torch.ones(1), "epoch": 3}, path / "number.pth")
    torch.save({3: torch.ones(1)}, path / "index.pth")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        *[(f"{what}{suffix}", "damaged") for what in ("half", "empty", "text") for suffix in (".pth", ".safetensors")],
        ("weights.onnx", "got '.onnx'"),
        ("folder.pth", "no such weights file"),
        ("absent.pth", "no such weights file"),
        ("runs/absent", "the run or weights file does not exist"),
        ("absent.safetensors", "no such weights file"),
        ("nothing.pth", "found nothing"),
        ("list.pth", "found list"),
        ("number.pth", "found int under 'epoch'"),
        ("index.pth", "under 3"),
    ],
)
def test_what_is_no_file_of_weights(name, problem, tmp_path):
    broken(tmp_path)
    with pytest.raises(UserError) as caught:
        read_weights(tmp_path / name)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: ")
    assert problem in message
    assert "\n" not in message


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(torch, "load", refuse)
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(UserError, match=r"w\.pth: the file cannot be read: Permission denied$"):
        read_weights(tmp_path / "w.pth")


@pytest.mark.parametrize(("name", "backbone"), [("resnet18", "mobilenetv2"), ("mobilenetv2", "resnet50")])
def test_weights_of_another_backbone_are_recognised(name, backbone, tmp_path):
    state = build_model(f"fpn_{backbone}", 2).module.backbone.state_dict()
    path = saved(tmp_path / "w.pth", {**state, "fc.weight": torch.ones(1)} if backbone == "resnet50" else state)
    reported = rf"w\.pth: the file is of {backbone}, and deeplabv2_{name} needs another backbone's$"
    with pytest.raises(UserError, match=reported):
        build_model(f"deeplabv2_{name}", 2, weights=path)
    torch.save({**state, "conv1.weight": torch.ones(1)}, path)
    with pytest.raises(UserError, match="the keys do not fit the model"):
        build_model(f"deeplabv2_{name}", 2, weights=path)


def test_unknown_keys_are_named():
    state = {f"encoder.{index}.weight": torch.ones(1) for index in range(8)}
    with pytest.raises(UserError, match=r"w\.pth.*encoder\.0\.weight, .*encoder\.4\.weight and 3 more"):
        recognise(state, "w.pth")


@pytest.fixture(scope="module")
def small():
    return plain.random_state(plain.torchvision_resnet_keys(18))


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"bn1.bias": None}, "1 missing (bn1.bias)"),
        ({"extra": torch.ones(1)}, "1 unexpected (extra)"),
        ({"head.fc.weight": torch.ones(1)}, "1 unexpected (head.fc.weight)"),
        ({"classifier.1.weight": torch.ones(1)}, "1 unexpected (classifier.1.weight)"),
        ({"bn1.bias": torch.ones(63)}, "1 of another shape (bn1.bias (63,) instead of (64,))"),
        (
            {"bn1.bias": None, "extra": torch.ones(1)},
            "the keys do not fit the model: 1 missing (bn1.bias); 1 unexpected (extra)",
        ),
    ],
)
def test_a_mismatch_names_the_keys(small, change, reported, tmp_path):
    state = {key: value for key, value in (small | change).items() if value is not None}
    with pytest.raises(UserError) as caught:
        build_model("deeplabv2_resnet18", 4, weights=saved(tmp_path / "w.pth", state))
    assert str(caught.value).endswith(reported)


def test_a_longer_mismatch_is_counted(small, tmp_path):
    path = saved(tmp_path / "w.pth", {**small, "conv1.weight": torch.ones(1)})  # no known backbone's
    with pytest.raises(UserError, match=r"165 missing \(layer1\.0\.downsample\.0\.weight, .* and 160 more\)"):
        build_model("deeplabv2_resnet50", 4, weights=path)
    with pytest.raises(UserError, match=r"255 missing \(features\.0\.0\.weight, .* and 250 more\); 122 unexpected"):
        build_model("deeplabv2_mobilenetv2", 4, weights=path)


def test_a_mismatch_speaks_the_names_of_the_file():
    with torch.device("meta"):
        state = {key: torch.empty(shape) for key, shape in plain.deeplab_pytorch_keys(5).items()}
        del state["base.layer4.block23.conv3x3.bn.bias"], state["base.aspp.c3.weight"]
        state["base.layer6.block1.reduce.conv.weight"] = torch.empty(1)
        with pytest.raises(UserError) as caught:
            load_deeplab_pytorch(deeplab(5), state, "w.pth")
    assert "2 missing (layer4.block23.conv3x3.bn.bias, aspp.c3.weight)" in str(caught.value)
    assert "1 unexpected (layer6.block1.reduce.conv.weight)" in str(caught.value)


def test_old_files_lack_the_batch_counter(small, tmp_path):
    state = {key: value for key, value in small.items() if not key.endswith("num_batches_tracked")}
    model = build_model("deeplabv2_resnet18", 4, weights=saved(tmp_path / "w.pth", state))
    assert torch.equal(model.module.backbone.bn1.running_mean, small["bn1.running_mean"])


def test_weights_of_another_model_or_variant(small, tmp_path):
    path = saved(tmp_path / "w.pth", small)
    with pytest.raises(UserError, match="belong to variant 'torchvision', got 'caffe'"):
        build_model("deeplabv2_resnet18", 4, weights=path, variant="caffe")
    path = saved(tmp_path / "v.pth", {"base.layer1.conv1.conv.weight": torch.ones(64, 3, 7, 7)})
    with pytest.raises(UserError, match="are for deeplabv2_resnet101, got deeplabv2_resnet50"):
        build_model("deeplabv2_resnet50", 4, weights=path)
    with pytest.raises(UserError, match=r"belong to variant 'caffe', got 'torchvision'"):
        build_model("deeplabv2_resnet101", 4, weights=path, variant="torchvision")

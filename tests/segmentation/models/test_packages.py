"""Networks of other packages: the real ones where they import, and stand-ins for what an adapter must get right."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from losspool.segmentation.base import UserError
from losspool.segmentation.models import ModelSpec, TrainingOutput, build_from_spec, build_model
from losspool.segmentation.runs import checkpoint_errors
from other_packages import import_torchvision


class Strict(nn.Module):
    """A network like smp's: takes multiples of 8 only."""

    requires_divisible_input_shape = True

    def __init__(self, encoder_name="a", encoder_weights="imagenet", in_channels=3, classes=1, stride=1):
        super().__init__()
        assert encoder_weights is None, "a download"
        if encoder_name == "bad":
            raise KeyError("no encoder\nand so on")
        self.encoder = SimpleNamespace(output_stride=8)
        self.conv = nn.Conv2d(in_channels, classes, stride, stride)

    def forward(self, x):
        assert x.shape[2] % 8 == x.shape[3] % 8 == 0
        return self.conv(x)


class WithAux(nn.Module):
    """A network like torchvision's: logits by name."""

    def __init__(self, classes, aux):
        super().__init__()
        self.conv, self.second = nn.Conv2d(3, classes, 1), nn.Conv2d(3, classes, 1) if aux else None

    def forward(self, x):
        found = {"out": self.conv(x)}
        return found if self.second is None else {**found, "aux": self.second(x)}


def two_logits(num_classes, aux_loss=False, weights="DEFAULT", weights_backbone="DEFAULT"):
    assert weights is None, "a download"
    assert weights_backbone is None, "a download"
    return WithAux(num_classes, aux_loss)


class Config:
    def __init__(self, num_labels=2, stride=4):
        self.num_labels, self.stride = num_labels, stride

    def to_dict(self):
        return vars(self)


class WithLogits(nn.Module):
    """A network like those of transformers: a config, and logits as an attribute."""

    config_class = Config

    def __init__(self, config):
        super().__init__()
        self.conv = nn.Conv2d(3, config.num_labels, config.stride, config.stride)

    def forward(self, x):
        return SimpleNamespace(logits=self.conv(x))


class ConfigWithAux(Config):
    def __init__(self, use_auxiliary_head=True, **others):
        super().__init__(**others)
        self.use_auxiliary_head = use_auxiliary_head


class WithUntrained(WithLogits):
    """A network like transformers' UperNet: an auxiliary head that only a loss of its own uses."""

    config_class = ConfigWithAux

    def __init__(self, config):
        super().__init__(config)
        self.second = nn.Conv2d(3, config.num_labels, 1) if config.use_auxiliary_head else None


@pytest.fixture
def stand_ins(monkeypatch):
    models = SimpleNamespace(segmentation="here", list_models=lambda module: ["two_logits"])
    models.get_model_builder = {"two_logits": two_logits}.get
    contents = {
        "segmentation_models_pytorch": {"Strict": Strict, "CONSTANT": 3},
        "torchvision": {"models": models},
        "transformers": {"WithLogits": WithLogits, "WithUntrained": WithUntrained, "Config": Config},
    }
    for name, content in contents.items():
        package = ModuleType(name)
        vars(package).update(content)
        monkeypatch.setitem(sys.modules, name, package)


@pytest.mark.parametrize(
    ("name", "args", "stride"),
    [
        ("smp:Strict", {}, 1),
        ("smp:Strict", {"stride": 4, "encoder_weights": None}, 4),
        ("torchvision:two_logits", {"aux_loss": True}, 1),
        ("transformers:WithLogits", {"stride": 2}, 2),
    ],
)
@pytest.mark.usefixtures("stand_ins")
def test_sizes_strides_and_a_description_that_rebuilds(name, args, stride):
    model = build_model(name, 5, args=args)
    assert (model.spec.output_stride, model.spec.logit_stride, model.spec.args) == (stride, stride, args)
    assert model.module.training
    x = torch.randn(2, 3, 21, 34)
    size = (-(-21 // stride), -(-34 // stride)) if name.startswith("smp") else (21 // stride, 34 // stride)
    logits = model.check_logits(model.module.eval()(x), x)
    assert logits.shape == (2, 5, *size)
    again = build_from_spec(ModelSpec.from_dict(json.loads(json.dumps(model.spec.to_dict()))))
    again.module.load_state_dict(model.module.state_dict())
    assert torch.equal(again.module.eval()(x), logits)


@pytest.mark.usefixtures("stand_ins")
def test_padding_leaves_the_logits_of_the_image_alone():
    model = build_model("smp:Strict", 2, args={"stride": 4})
    x = torch.randn(1, 3, 24, 32)
    with torch.no_grad():
        assert torch.equal(model.module(x[:, :, :20, :28]), model.module(x)[:, :, :5, :7])


@pytest.mark.usefixtures("stand_ins")
def test_auxiliary_logits_are_returned_in_training_only():
    module = build_model("torchvision:two_logits", 5, args={"aux_loss": True}).module
    x = torch.randn(1, 3, 8, 8)
    output = module.train()(x)
    assert isinstance(output, TrainingOutput)
    assert torch.equal(output.logits, module.network.conv(x))
    assert torch.equal(output.aux, module.network.second(x))
    assert torch.equal(module.eval()(x), output.logits)
    assert isinstance(build_model("torchvision:two_logits", 5).module.train()(x), torch.Tensor)


@pytest.mark.usefixtures("stand_ins")
def test_an_auxiliary_head_that_is_not_trained_is_left_out():
    """Of new networks. A checkpoint of an earlier version has the head, and its arguments do not say so."""
    model = build_model("transformers:WithUntrained", 5)
    assert model.module.network.second is None
    assert build_from_spec(model.spec).module.network.second is None
    for args in ({}, {"use_auxiliary_head": True}):
        earlier = replace(model.spec, args=args)
        assert build_from_spec(earlier).module.network.second is not None


@pytest.mark.usefixtures("stand_ins")
def test_weights_are_the_networks_own(tmp_path):
    source = build_model("smp:Strict", 2).module.network
    torch.save(source.state_dict(), tmp_path / "own.pth")
    model = build_model("smp:Strict", 2, weights=tmp_path / "own.pth")
    assert torch.equal(model.module.network.conv.weight, source.conv.weight)
    with pytest.raises(UserError, match="do not fit the model"):
        build_model("smp:Strict", 3, weights=tmp_path / "own.pth")


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("smp:Strikt", {}, "'smp:Strikt': the package has no network 'Strikt', did you mean 'Strict'?"),
        ("smp:CONSTANT", {}, "the package has no network 'CONSTANT'"),
        ("smp:Strict", {"encoder_nam": "a"}, "no argument 'encoder_nam', did you mean 'encoder_name'?"),
        ("smp:Strict", {"encoder_name": "bad"}, "called with 3, encoder_name='bad' raised KeyError"),
        ("smp:Strict", {"classes": 4}, "multiple values for keyword argument 'classes'"),
        ("smp:Strict", {"encoder_weights": "imagenet"}, "encoder_weights='imagenet' would download weights"),
        ("smp:Strict", {"encoder_name": "tu-hf_hub:a/b"}, "would download a network"),
        ("torchvision:resnet50", {}, "the package has no network 'resnet50'"),
        ("torchvision:two_logits", {"weights_backbone": "DEFAULT"}, "would download weights"),
        ("torchvision:two_logits", {"pretrained": True}, "would download weights"),
        ("torchvision:two_logits", {"depth": 3}, "raised TypeError"),
        ("transformers:Config", {}, "the package has no network 'Config'"),
        ("transformers:WithLogits", {"strides": 1}, "no argument 'strides', did you mean 'stride'?"),
        ("transformers:WithLogits", {"pretrained": "nobody/nothing"}, "must be a local folder with a .safetensors"),
        ("transformers:WithLogits", {"inner": {"use_pretrained_backbone": True}}, "would download weights"),
        (
            "transformers:WithUntrained",
            {"use_auxiliary_head": True},
            "use_auxiliary_head=True adds a head that is not trained; leave it out: only torchvision's aux_loss=true",
        ),
        ("deeplabv2_resnet18", {"width": 3}, "a built-in model takes no model.args, got {'width': 3}"),
    ],
)
@pytest.mark.usefixtures("stand_ins")
def test_mistakes_are_one_sentence(name, args, sentence):
    with pytest.raises(UserError) as caught:
        build_model(name, 3, args=args)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "install"), [("smp:Unet", "segmentation-models-pytorch"), ("transformers:X", "transformers")]
)
def test_a_missing_package_is_named(monkeypatch, name, install):
    for module in ("segmentation_models_pytorch", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"model '{name}' needs the package {install}: pip install {install}"):
        build_model(name, 3)
    with pytest.raises(UserError, match=rf"^model '{name}' needs"), checkpoint_errors(Path("a.pt"), "its own model"):
        build_model(name, 3)


def test_an_import_path_takes_arguments(tmp_path):
    model = build_model("torch.nn.Conv2d", 3, args={"out_channels": 4, "kernel_size": 1})
    assert build_from_spec(ModelSpec.from_dict(model.spec.to_dict())).module.weight.shape == (4, 3, 1, 1)
    with pytest.raises(UserError, match=r"'torch\.nn\.Conv2d' called with 3, depth=1 raised TypeError"):
        build_model("torch.nn.Conv2d", 3, args={"depth": 1})


SEGFORMER = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 8, 16, 16], "decoder_hidden_size": 16}


@pytest.mark.parametrize(
    ("package", "name", "args", "stride"),
    [
        ("segmentation_models_pytorch", "smp:Unet", {"encoder_name": "resnet18"}, 1),
        ("torchvision", "torchvision:deeplabv3_resnet50", {"aux_loss": True}, 1),
        ("transformers", "transformers:SegformerForSemanticSegmentation", SEGFORMER, 4),
    ],
)
def test_a_real_package(package, name, args, stride):
    import_torchvision()
    pytest.importorskip(package, reason=f"{package} is not installed; make test-frameworks runs it")
    model = build_model(name, 4, args=args)
    assert model.spec.logit_stride == stride
    model.dry_run(70, 90, batch=2)
    output = model.module.train()(torch.randn(2, 3, 70, 90))
    assert isinstance(output, TrainingOutput) == ("aux_loss" in args)
    again = build_from_spec(ModelSpec.from_dict(json.loads(json.dumps(model.spec.to_dict()))))
    again.module.load_state_dict(model.module.state_dict())


def test_transformers_from_a_local_folder(tmp_path):
    """The weights are the folder's, a head for other classes is fresh, and a checkpoint does not need the folder."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; make test-frameworks runs it"
    )
    kind = transformers.SegformerForSemanticSegmentation
    source = kind(transformers.SegformerConfig(num_labels=7, **SEGFORMER))
    source.save_pretrained(tmp_path / "segformer")
    model = build_model(f"transformers:{kind.__name__}", 4, args={"pretrained": str(tmp_path / "segformer")})
    loaded = model.module.network.state_dict()
    fresh = {key for key, value in source.state_dict().items() if loaded[key].shape != value.shape}
    assert fresh == {"decode_head.classifier.weight", "decode_head.classifier.bias"} == set(model.report.fresh)
    assert all(torch.equal(loaded[key], value) for key, value in source.state_dict().items() if key not in fresh)
    assert model.module.training
    for path in (tmp_path / "segformer").iterdir():
        path.unlink()
    again = build_from_spec(ModelSpec.from_dict(json.loads(json.dumps(model.spec.to_dict()))))
    again.module.load_state_dict(model.module.state_dict())
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(again.module.eval()(x), model.module.eval()(x))


def test_transformers_reads_no_pickle(tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed; make test-frameworks runs it"
    )
    config = transformers.SegformerConfig(num_labels=4, **SEGFORMER)
    config.save_pretrained(tmp_path)
    torch.save(transformers.SegformerForSemanticSegmentation(config).state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"must be a local folder with a \.safetensors file"):
        build_model("transformers:SegformerForSemanticSegmentation", 4, args={"pretrained": str(tmp_path)})

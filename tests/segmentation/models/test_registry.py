"""Models by name and by import path, and back from a checkpoint's description."""

import json
import math

import pytest
import torch
from torch import nn

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.models import ModelSpec, Preprocessing, TrainingOutput, build_from_spec, build_model
from losspool.segmentation.models.preprocessing import IMAGENET

OWN = """
from types import SimpleNamespace

import torch
from torch import nn

from losspool.segmentation.models import TrainingOutput

class Split(nn.Module):
    preprocessing = {"mean": [1, 2, 3], "bgr": True}

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4))
        self.head = nn.Conv2d(4, classes, 1)

    def forward(self, x):
        return self.head(self.body(x))

    def backbone_parameters(self):
        return self.body.parameters()

    def head_parameters(self):
        return self.head.parameters()

class Forgetful(Split):
    preprocessing = None

    def head_parameters(self):
        return [self.head.weight]

def build(classes):
    return nn.Conv2d(3, classes, 1)

def number(classes):
    return classes

def failing(classes):
    raise RuntimeError("out of luck")

def two(classes, width):
    return None

class Training(nn.Module):
    # Right in evaluation; in training it returns what ``change`` makes of the logits.

    def __init__(self, classes, change):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, classes, 1), nn.BatchNorm2d(classes), nn.Dropout())
        self.change = eval(change, {"torch": torch, "TrainingOutput": TrainingOutput})

    def forward(self, x):
        x = self.body(x)
        return self.change(x) if self.training else x

class Unwrapped(nn.Module):
    # Logits in a dict, as torchvision returns them, or in an object, as transformers does.

    def __init__(self, classes, by_name):
        super().__init__()
        self.main, self.aux, self.by_name = nn.Conv2d(3, classes, 1), nn.Conv2d(3, classes, 1), by_name

    def forward(self, x):
        if self.by_name:
            return {"out": self.main(x), "aux": self.aux(x)}
        return SimpleNamespace(logits=self.main(x))

notice = "not callable"
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_models_for_test.py").write_text(OWN)
    (tmp_path / "own_broken_for_test.py").write_text("import no_such_package_anywhere")
    monkeypatch.syspath_prepend(tmp_path)
    return "own_models_for_test"


def through_json(spec):
    return ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict())))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("deeplabv2_mobilenetv2", {"output_stride": 16}),
        ("deeplabv2_resnet18", {"variant": "caffe", "batch_norm": "frozen"}),
        ("deeplabv2_resnet50", {}),
    ],
)
def test_a_description_rebuilds_the_model(name, options):
    model = build_model(name, 3, **options)
    spec = through_json(model.spec)
    assert spec == model.spec
    again = build_from_spec(spec)
    assert not torch.equal(*(m.module.aspp.branches[0].weight for m in (model, again)))
    again.module.load_state_dict(model.module.state_dict())
    x = torch.randn(1, 3, 64, 40)
    with torch.no_grad():
        assert torch.equal(model.module.eval()(x), again.module.eval()(x))
    assert [p.requires_grad for p in model.module.parameters()] == [p.requires_grad for p in again.module.parameters()]


def test_without_weights():
    spec = build_model("deeplabv2_resnet18", 2).spec
    assert spec == ModelSpec("deeplabv2_resnet18", 2, 8, "torchvision", IMAGENET, False)


def test_groups_of_a_named_model():
    model = build_model("deeplabv2_resnet18", 4, batch_norm="frozen")
    backbone, head = model.parameter_groups(0.01)
    assert (backbone["name"], backbone["lr"], len(backbone["params"])) == ("backbone", 0.01, 20)
    assert (head["name"], head["lr"], len(head["params"])) == ("head", 0.1, 8)
    assert all(parameter.ndim == 4 for parameter in backbone["params"])  # no BatchNorm


def test_an_own_model_with_parts(own):
    model = build_model(f"{own}.Split", 5)
    assert model.spec == ModelSpec(f"{own}.Split", 5, None, None, Preprocessing((1, 2, 3), bgr=True), False)
    assert through_json(model.spec) == model.spec
    assert isinstance(build_from_spec(model.spec).module, type(model.module))
    assert [(group["name"], group["lr"]) for group in model.parameter_groups(1, 3)] == [("backbone", 1), ("head", 3)]
    x = torch.zeros(2, 3, 8, 6)
    assert model.check_logits(model.module(x), x).shape == (2, 5, 4, 3)


def test_an_own_model_without_parts(own):
    model = build_model(f"{own}.build", 5)
    assert model.spec.preprocessing == IMAGENET
    (group,) = model.parameter_groups(0.5)
    assert (group["name"], group["lr"], len(group["params"])) == ("all", 0.5, 2)


def test_an_own_models_weights(own, tmp_path):
    source = build_model(f"{own}.Split", 5).module
    torch.save(source.state_dict(), tmp_path / "w.pth")
    model = build_model(f"{own}.Split", 5, weights=tmp_path / "w.pth")
    assert torch.equal(model.module.head.weight, source.head.weight)
    assert model.spec.frozen_bn
    assert model.report.loaded == len(source.state_dict())
    with pytest.raises(UserError, match=r"head\.weight \(5, 4, 1, 1\) instead of \(6, 4, 1, 1\)"):
        build_model(f"{own}.Split", 6, weights=tmp_path / "w.pth")


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("no_such_package_anywhere.build", "cannot be imported .*No module named 'no_such_package_anywhere'"),
        ("own_broken_for_test.build", "cannot be imported .*no_such_package_anywhere"),
        ("own_models_for_test.bild", "cannot be imported .*bild"),
        (".build", "cannot be imported"),
        ("own_models_for_test.notice", "must be callable with the number of classes, got str"),
        ("own_models_for_test.number", r"must return a torch\.nn\.Module, got int"),
        ("own_models_for_test.failing", "called with 3 raised RuntimeError: out of luck"),
        ("own_models_for_test.two", "called with 3 raised TypeError"),
        ("own_models_for_test.Forgetful", "preprocessing must have the fields"),
    ],
)
@pytest.mark.usefixtures("own")
def test_import_paths_that_lead_nowhere(path, reported):
    with pytest.raises(UserError, match=reported):
        build_model(path, 3)


def test_forgotten_parameters_are_noticed(own):
    model = build_model(f"{own}.Split", 3)
    model.module.head_parameters = lambda: [model.module.head.weight]
    with pytest.raises(UserError, match="got 4 and 1 of 6"):
        model.parameter_groups(0.1)


@pytest.mark.parametrize(
    ("logits", "reported"),
    [
        ({"out": torch.zeros(2, 5, 4, 4)}, "got dict"),
        (torch.zeros(2, 4, 4, 4), r"got \(2, 4, 4, 4\)"),
        (torch.zeros(1, 5, 4, 4), r"got \(1, 5, 4, 4\)"),
        (torch.zeros(2, 5), r"got \(2, 5\)"),
        (torch.zeros(2, 5, 9, 4), r"got \(2, 5, 9, 4\) for \(2, 3, 8, 8\)"),
    ],
)
def test_wrong_logits_of_an_own_model_are_named(own, logits, reported):
    model = build_model(f"{own}.build", 5)
    with pytest.raises(UserError, match=reported):
        model.check_logits(logits, torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("lambda x: torch.cat([x, x], 1)", r"the model in training mode must return .*, got \(2, 6, 8, 8\)"),
        ("lambda x: x[:1]", r"the model in training mode must return .*, got \(1, 3, 8, 8\)"),
        ("lambda x: (x, x)", r"the model in training mode must return logits \(B, 3, h, w\).*, got tuple"),
        ("lambda x: None", "the model in training mode must return .*, got NoneType"),
        ("lambda x: TrainingOutput(x, x[:, :2])", r"the auxiliary head must return .*, got \(2, 2, 8, 8\)"),
        ("lambda x: x.softmax(7)", "the model raised IndexError for crops of 2×3×8×8 in training mode: Dimension out"),
    ],
)
def test_wrong_outputs_in_training_are_named(own, change, reported):
    model = build_model(f"{own}.Training", 3, args={"change": change})
    with pytest.raises(UserError, match=reported):
        model.dry_run(8, 8, batch=4)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_dry_run_leaves_no_trace(own, batch):
    model = build_model(f"{own}.Training", 3, args={"change": "lambda x: TrainingOutput(x, x)"})
    state = {key: value.clone() for key, value in model.module.state_dict().items()}
    random = torch.get_rng_state()
    model.dry_run(8, 8, batch)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in model.module.state_dict().items())
    assert all(parameter.grad is None for parameter in model.module.parameters())
    assert model.module.training


@pytest.mark.parametrize("by_name", [True, False])
def test_logits_in_a_dict_or_an_object_are_unwrapped(own, by_name):
    module = build_model(f"{own}.Unwrapped", 5, args={"by_name": by_name}).module
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(module.eval()(x), module.main(x))
    found = module.train()(x)
    assert isinstance(found, TrainingOutput) == by_name
    if by_name:
        assert torch.equal(found.aux, module.aux(x))
        found = found.logits
    assert torch.equal(found, module.main(x))


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        ({"name": "deeplabv2_resnet110"}, "unknown model 'deeplabv2_resnet110', did you mean 'deeplabv2_resnet101'"),
        ({"name": "mobilenet"}, "did you mean 'fpn_mobilenetv2'"),
        ({"name": "smp:"}, "model 'smp:': smp: needs the name of a network, as in smp:Unet"),
        ({"output_stride": 32}, "output stride must be 8 or 16, got 32"),
        ({"variant": "pytorch"}, "variant must be 'torchvision' or 'caffe', got 'pytorch'"),
        ({"name": "deeplabv2_mobilenetv2", "variant": "caffe"}, "variant must be 'torchvision', got 'caffe'"),
        ({"name": "torch.nn.Identity", "variant": "caffe"}, "variant must be None, got 'caffe'"),
        ({"num_classes": 0}, "number of classes .* got 0"),
        ({"num_classes": True}, "number of classes .* got True"),
        ({"num_classes": 2.0}, r"number of classes .* got 2\.0"),
        ({"batch_norm": "no"}, "batch_norm must be one of frozen, train, sync, got 'no'"),
    ],
)
def test_wrong_arguments_are_named(arguments, reported):
    with pytest.raises(UserError, match=reported):
        build_model(**{"name": "deeplabv2_resnet18", "num_classes": 3, **arguments})


@pytest.mark.parametrize(
    "change", [{"name": None}, {"extra": 1}, {"output_stride": math.nan}, {"preprocessing": 3}, {"num_classes": "3"}]
)
def test_a_damaged_description_is_refused(change):
    stored = build_model("deeplabv2_mobilenetv2", 3).spec.to_dict() | change
    with pytest.raises(UserError):
        ModelSpec.from_dict(stored)


def test_nn_modules_from_any_package_work():
    assert isinstance(build_model("torch.nn.Identity", 3).module, nn.Identity)

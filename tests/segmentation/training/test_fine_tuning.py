"""``model.weights`` of another run: its networks go on, with a new head where the classes are others."""

import pytest
import torch

from losspool.segmentation.base import UserError
from losspool.segmentation.config import load_config
from losspool.segmentation.models.preprocessing import CAFFE
from losspool.segmentation.training import Trainer
from runs_for_tests import assert_equal, checkpoint, train, write_recipe
from small_data import CLASSES, VOID, write_classes


@pytest.fixture
def trained(tmp_path):
    """A run on three classes, with averaged weights."""
    train(write_recipe(tmp_path, steps=6), tmp_path / "trained", "train.ema=0.5")
    return tmp_path / "trained"


def network(recipe, out, *overrides):
    trainer = Trainer(load_config(recipe, overrides), out)
    trainer._lock.release()
    return trainer.model


@pytest.mark.parametrize("place", ["", "checkpoints/step-0000006.pt"])
def test_it_starts_from_the_averaged_weights(trained, tmp_path, place, capsys):
    model = network(tmp_path / "tiny.yaml", tmp_path / "fine", f"model.weights={trained / place}")
    stored = checkpoint(trained, 6)
    assert_equal(dict(model.module.state_dict()), {**stored["model"], **stored["averaged"]})
    assert "11 tensors loaded (losspool layout)" in capsys.readouterr().err
    assert not model.spec.frozen_bn  # as in the run


def test_another_number_of_classes_gets_a_new_head(trained, tmp_path, capsys):
    write_classes(
        tmp_path / "data", {"classes": [*CLASSES, {"name": "stone", "id": 9, "color": [1, 2, 3]}], "ignore": VOID}
    )
    recipe = tmp_path / "tiny.yaml"
    model = network(recipe, tmp_path / "fine", f"model.weights={trained}", "seed=5")
    scratch = network(recipe, tmp_path / "scratch", "seed=5")
    stored = checkpoint(trained, 6)
    kept = {**stored["model"], **stored["averaged"]}
    for key, value in model.module.state_dict().items():
        if key.startswith("6."):
            assert len(value) == 4
            assert torch.equal(value, scratch.module.state_dict()[key])
        else:
            assert torch.equal(value, kept[key])
    assert "6.weight, 6.bias randomly initialised: the file has 3 classes, the model 4" in capsys.readouterr().err
    assert train(recipe, tmp_path / "run", f"model.weights={trained}").state.step == 6


def test_preprocessing_and_batch_norm_are_the_runs(trained, tmp_path, monkeypatch):
    from losspool.segmentation.runs import checkpoint_path, read_checkpoint, write_checkpoint

    content = read_checkpoint(checkpoint_path(trained / "checkpoints", 6))
    spec = {**content["spec"], "preprocessing": CAFFE.to_dict(), "frozen_bn": True}
    write_checkpoint(trained / "checkpoints", 6, {**content, "spec": spec})
    weights = f"model.weights={trained}"
    model = network(tmp_path / "tiny.yaml", tmp_path / "fine", weights)
    assert (model.spec.preprocessing, model.spec.frozen_bn) == (CAFFE, True)
    model = network(tmp_path / "tiny.yaml", tmp_path / "fine2", weights, "model.batch_norm=train")
    assert not model.spec.frozen_bn


def test_mistakes(trained, tmp_path):
    recipe, weights = tmp_path / "tiny.yaml", f"model.weights={trained}"
    with pytest.raises(UserError, match=r"holds a tiny_model\.build, but model\.name is tiny_model\.build_plain"):
        network(recipe, tmp_path / "run", weights, "model.name=tiny_model.build_plain")
    with pytest.raises(UserError, match="this folder has no checkpoints/step-"):
        network(recipe, tmp_path / "run", f"model.weights={tmp_path}")
    (tmp_path / "other.pt").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"other\.pt: the file is damaged"):
        network(recipe, tmp_path / "run", f"model.weights={tmp_path / 'other.pt'}")
    assert not (tmp_path / "run").exists()


def test_a_decoder_that_is_frozen_as_initialised_is_reported(trained, tmp_path, capsys):
    """Where batch_norm is not set and the weights file has the backbone alone."""
    recipe, network_name = tmp_path / "tiny.yaml", "model.name=fpn_resnet18"
    backbone = network(recipe, tmp_path / "first", network_name).module.backbone
    torch.save(backbone.state_dict(), tmp_path / "backbone.pth")
    pretrained = (network_name, f"model.weights={tmp_path / 'backbone.pth'}")
    capsys.readouterr()
    network(recipe, tmp_path / "second", *pretrained)
    reported = capsys.readouterr().err
    assert "freezes BatchNorm: that of mix stays as initialised; set model.batch_norm=train to train it" in reported
    others = (
        (*pretrained, "model.batch_norm=train"),
        (*pretrained, "model.batch_norm=frozen"),
        (*pretrained, "model.name=deeplabv2_resnet18"),
        (f"model.weights={trained}",),
    )
    for number, stated in enumerate(others):
        network(recipe, tmp_path / f"other-{number}", *stated)
        assert "as initialised" not in capsys.readouterr().err

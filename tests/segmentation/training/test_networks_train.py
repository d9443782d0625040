"""Networks in the trainer: they learn and resume; auxiliary heads and BatchNorm do as the settings say."""

import pytest
import torch

from four_images import check_network
from losspool.segmentation.models.batch_norm import FrozenBatchNorm
from other_packages import import_torchvision
from runs_for_tests import metrics, train, write_recipe


def test_a_network_overfits_resumes_and_exports(tmp_path):
    """tests/scripts/overfit_networks.py does the same with all networks, and exports them to .pt2 too."""
    pytest.importorskip("onnxscript", reason="exporting to ONNX needs losspool[export]")
    assert check_network(tmp_path, "fpn_resnet18", "train.steps=40", size=64, suffixes=("onnx",)) > 0.95


def test_another_packages_network_overfits_and_resumes(tmp_path):
    import_torchvision()  # smp's dependency timm imports it
    pytest.importorskip("segmentation_models_pytorch", reason="make test-frameworks runs it")
    overrides = ("model.args.encoder_name=resnet18", "train.steps=60", "train.lr=0.05")
    assert check_network(tmp_path, "smp:Unet", *overrides, size=64, suffixes=()) > 0.95


def auxiliary_run(tmp_path, weight):
    recipe = write_recipe(tmp_path, steps=1, log_every=1)
    overrides = ("model.name=tiny_model.build_auxiliary", "method=base", f"model.aux_weight={weight}")
    trainer = train(recipe, tmp_path / f"run-{weight}", *overrides)
    (line, _) = metrics(tmp_path / f"run-{weight}")
    return trainer.model.module, line["loss"]


def test_the_auxiliary_head_is_trained_by_its_weight(tmp_path):
    """The loss grows linearly in the weight, and so does the gradient of the auxiliary head."""
    torch.manual_seed(0)
    runs = {weight: auxiliary_run(tmp_path, weight) for weight in (0, 1, 2)}
    losses = [loss for _, loss in runs.values()]
    assert losses[1] - losses[0] == pytest.approx(losses[2] - losses[1], rel=1e-4)
    assert losses[1] - losses[0] > 0.1
    moved = [module.aux.bias.detach() - runs[0][0].aux.bias.detach() for module, _ in runs.values()]
    assert not moved[0].any()
    assert moved[1].abs().max() > 1e-4
    torch.testing.assert_close(2 * moved[1], moved[2], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("setting", "frozen"), [("null", False), ("train", False), ("frozen", True)])
def test_batch_norm_learns_unless_it_is_frozen(tmp_path, setting, frozen):
    recipe = write_recipe(tmp_path, steps=2)
    trainer = train(recipe, tmp_path / "run", f"model.batch_norm={setting}")
    norm = trainer.model.module[1]
    assert isinstance(norm, FrozenBatchNorm) == frozen
    assert bool(norm.running_mean.any()) == (not frozen)

"""``losspool export``: the file computes what the network computes, or is not left behind."""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from losspool.segmentation.config.schema import DataConfig
from losspool.segmentation.models.packages import Adapted
from losspool.segmentation.models.preprocessing import IMAGENET
from losspool.segmentation.models.spec import ModelSpec
from losspool.segmentation.prediction import export
from losspool.segmentation.prediction.trained_run import TrainedRun
from trained_runs import assert_mistake, random_image, small_config, write_run

TINY = ("--model", "tiny_model.build")


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", small_config(tmp_path / "data"))


def expected(folder, images, model=None, stride=None):
    """Preprocessing, network and enlargement, step by step."""
    module = TrainedRun.open(folder.path, [model]).load(5).model.module
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (IMAGENET.mean, IMAGENET.std))
    with torch.no_grad():
        coarse = module(((pixels - mean) / std).float())
        height, width = images.shape[1:3]
        size = (height, width) if stride is None else (stride * coarse.shape[2], stride * coarse.shape[3])
        return F.interpolate(coarse, size, mode="bilinear", align_corners=False)[:, :, :height, :width].numpy()


def pictures(count, height, width):
    return np.stack([random_image(height, width, seed) for seed in range(count)])


def load_program(path):
    module = torch.export.load(io.BytesIO(path.read_bytes())).module()

    def run(images):
        with torch.no_grad():
            return module(torch.from_numpy(images)).numpy()

    return run


def load_onnx(path):
    session = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed").InferenceSession(str(path))
    (given,) = session.get_inputs()
    assert (given.name, given.type) == ("images", "tensor(uint8)")
    return lambda images: session.run(["logits"], {"images": images})[0]


LOADERS = {"onnx": load_onnx, "pt2": load_program}
"""From a file to what runs it on images."""


@pytest.mark.parametrize("suffix", LOADERS)
def test_a_file_for_every_size(tmp_path, run, command, suffix):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    path = tmp_path / f"made/model.{suffix}"
    assert_mistake(command("export", run.path, path, *TINY), f"{path}: the folder {path.parent} does not exist")
    assert not path.parent.exists()
    path.parent.mkdir()
    code, output, error = command("export", run.path, path, *TINY)
    assert (code, error) == (0, "")
    assert "uint8 images (B, H, W, 3) to logits (B, 3, H, W)" in output
    assert float(output.split("network: ")[1].splitlines()[0]) < 1e-3
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    exported = LOADERS[suffix](path)
    for shape in ((1, 64, 96), (3, 37, 51)):
        images = pictures(*shape)
        found, wanted = exported(images), expected(run, images, "tiny_model.build")
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() < 1e-4
        assert wanted.std() > 1


@pytest.mark.parametrize("suffix", LOADERS)
def test_a_file_for_one_size(tmp_path, run, command, suffix):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    path = tmp_path / f"model.{suffix}"
    assert command("export", run.path, path, "--size", "40,56", *TINY)[0] == 0
    images, exported = pictures(1, 40, 56), LOADERS[suffix](path)
    assert np.abs(exported(images) - expected(run, images, "tiny_model.build")).max() < 1e-4
    with pytest.raises(Exception, match=r"(?i)dimension|shape|guard|size"):
        exported(pictures(1, 41, 56))


def test_a_cut_is_the_same_in_onnx(tmp_path):
    """The check of the exported file finds a row that is missing where sizes are not multiples of the stride."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    module = Adapted(nn.Conv2d(3, 2, 3, stride=4, padding=1))
    spec = SimpleNamespace(name="conv", preprocessing=IMAGENET, logit_stride=module.stride)
    trained = SimpleNamespace(
        model=SimpleNamespace(module=module, spec=spec),
        classes=[],
        config=SimpleNamespace(data=SimpleNamespace(zoom=1, exif="apply", intensity="auto")),
        step=0,
    )
    assert module.stride == 4
    assert export.export_run(trained, tmp_path / "model.onnx") < 1e-4


def test_an_image_that_ends_inside_a_cell(tmp_path, run, command, monkeypatch):
    """As with our networks, whose cells have a fixed size. tests/scripts/overfit_networks.py exports all of them."""
    monkeypatch.setattr(ModelSpec, "logit_stride", 4)
    path = tmp_path / "model.pt2"
    assert command("export", run.path, path, *TINY)[0] == 0
    exported = load_program(path)
    for size in ((65, 130), (64, 128)):  # inside a cell, and at the end of one
        images = pictures(2, *size)
        assert np.abs(exported(images) - expected(run, images, "tiny_model.build", stride=4)).max() < 1e-3


def test_what_a_user_must_know_is_inside(tmp_path, command):
    data = DataConfig("folder", str(tmp_path / "data"), zoom=0.5, intensity=(100.0, 2000.0))
    small_config(tmp_path / "data")
    run = write_run(tmp_path / "run", small_config(tmp_path / "data", data=data))
    path = tmp_path / "model.pt2"
    _, output, _ = command("export", run.path, path, *TINY)
    assert "0.5 times their size: resize yours too, with Pillow's BILINEAR" in output
    assert "\nThe images were turned by their EXIF orientation: turn yours too.\n" in output
    assert "100 to 2000 were read as black to white: (value - 100) * 255 / 1900, cut to 0 … 255." in output
    extra = {"losspool.json": ""}
    torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra)
    facts = json.loads(extra["losspool.json"])
    assert (facts["exif"], facts["intensity"]) == ("apply", [100, 2000])
    assert [entry["name"] for entry in facts["classes"]] == ["soil", "weed", "crop plant"]
    assert (facts["zoom"], facts["step"]) == (0.5, 5)
    assert facts["resize"].startswith("Pillow's BILINEAR")


def test_images_that_are_read_as_stored_are_not_to_be_turned(tmp_path, command):
    data = DataConfig("folder", str(tmp_path / "data"), exif="ignore")
    run = write_run(tmp_path / "run", small_config(tmp_path / "data", data=data))
    assert "EXIF" not in command("export", run.path, tmp_path / "model.pt2", *TINY)[1]


def wrong(offset):
    """A runner that is off by as much in one pixel."""

    def load(content):
        module = torch.export.load(io.BytesIO(content)).module()

        def run(images):
            logits = module(images).clone()
            logits[0, 0, 0, 0] += offset
            return logits

        return run

    return load


@pytest.mark.parametrize("offset", [0.02, float("nan")])
def test_a_file_that_computes_something_else_is_not_left_behind(tmp_path, run, command, monkeypatch, offset):
    monkeypatch.setattr(export, "_load_program", wrong(offset))
    path = tmp_path / "made/model.pt2"
    path.parent.mkdir()
    path.write_text("an older one")
    assert_mistake(command("export", run.path, path, "--size", "16,16", *TINY), "not written, because its logits")
    assert path.read_text() == "an older one"
    assert len(list(path.parent.iterdir())) == 1


def test_a_model_that_cannot_be_traced(tmp_path, command, monkeypatch):
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"))

    def refuse(self, images):
        return self.network(images) if images.sum().item() > 0 else images

    monkeypatch.setattr(export.Exported, "forward", refuse)
    result = command("export", run.path, tmp_path / "model.pt2", *TINY)
    assert_mistake(result, "tiny_model.build: the model cannot be exported (")
    assert not (tmp_path / "model.pt2").exists()


def test_missing_packages(tmp_path, run, command, monkeypatch):
    monkeypatch.setattr(export, "find_spec", lambda name: None if name == "onnxscript" else object())
    result = command("export", run.path, tmp_path / "model.onnx", *TINY)
    assert_mistake(result, "exporting to ONNX needs onnxscript: pip install 'losspool[export]'")


MISTAKES = {
    ("model.pth",): "model.pth: an exported model ends in .onnx or .pt2",
    ("model",): "model: an exported model ends in .onnx or .pt2",
    ("model.pt2", "--size", "12"): "a size is a height and a width such as 512,1024, got '12'",
    ("model.pt2", "--size", "0,12"): "height and width must be at least 1, got '0,12'",
    ("model.pt2", "--checkpoint", "first"): "a checkpoint is 'last', 'best' or steps",
    ("folder.pt2", "--size", "8,8"): "folder.pt2: cannot be written",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes(tmp_path, run, command, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.pt2").mkdir()
    assert_mistake(command("export", "run", *arguments, *TINY), MISTAKES[arguments])

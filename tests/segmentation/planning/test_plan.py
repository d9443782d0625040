"""``losspool plan``: the recipe follows from the data, and training with it works."""

import numpy as np
import pytest
import torch

from losspool.segmentation.config import DataConfig, load_config
from losspool.segmentation.data import build_index, open_dataset
from losspool.segmentation.models import build_model
from losspool.segmentation.planning import PlanOptions
from losspool.segmentation.planning import plan as plan_module
from losspool.segmentation.planning.cost import bytes_per_pixel, device_memory
from losspool.segmentation.planning.plan import _CPU, _GPU, Facts, _batch, _crop, _scale, _steps, _zoom, make_plan
from losspool.segmentation.planning.thickness import thickness
from raw_downloads import DOWNLOADS, grey_layout, mask_layout
from small_data import noise, save, write_classes
from three_commands_for_tests import planned, three_commands


@pytest.mark.parametrize("name", DOWNLOADS)
def test_three_commands_from_a_download_to_a_trained_network(tmp_path, name):
    """Import, plan, train: a fifth of the planned steps is enough. `make plans` takes them all."""
    assert three_commands(DOWNLOADS[name], tmp_path, "train.steps=40", "loss.m.steps=20") > 0.9


def dataset_of(tmp_path, *labels):
    write_classes(tmp_path, {"classes": ["ground", "thing"]})
    for number, label in enumerate(labels):
        save(tmp_path / f"images/train/{number}.png", noise(*label.shape))
        save(tmp_path / f"labels/train/{number}.png", label)
    dataset = open_dataset("folder", tmp_path, "train")
    return dataset, build_index(dataset)


def bar(width, turn):
    """A long bar: upright, lying, or along either diagonal."""
    rows, columns = np.ogrid[:120, :120]
    offsets = {"|": columns - 60, "-": rows - 60, "/": (rows + columns - 119) / 2**0.5, "\\": (rows - columns) / 2**0.5}
    return (np.abs(offsets[turn] + 0.25) < width / 2) + np.zeros((120, 120), np.uint8)


@pytest.mark.parametrize("width", [1, 5, 12])
@pytest.mark.parametrize("turn", "|-/\\")
def test_a_bar_is_as_thick_as_it_is_wide(tmp_path, width, turn):
    found = thickness(*dataset_of(tmp_path, bar(width, turn)))
    assert found[1] == pytest.approx(width, abs=0.01 if turn in "|-" else 1.5)
    assert found[0] > 3 * width


def test_a_class_without_pixels_has_no_thickness(tmp_path):
    found = thickness(*dataset_of(tmp_path, np.zeros((20, 30), np.uint8)))
    assert 10 < found[0] <= 20
    assert np.isnan(found[1])


def facts(height=360, width=480, thin=8.0, images=240):
    return Facts(images, height, width, ("ground", "thing", "none"), (50.0, thin, float("nan")), (0.9, 0.1, 0.0))


@pytest.mark.parametrize("size", [(360, 480), (1500, 2000), (3000, 4000), (64, 64)])
@pytest.mark.parametrize("thin", [1.0, 2.5, 4.0, 9.0, 40.0])
@pytest.mark.parametrize("device", [_CPU, _GPU], ids=lambda device: device.name)
def test_a_cell_is_not_wider_than_the_thinnest_class(size, thin, device):
    """Unless twice the size is not enough; and images are not larger than that and the device need."""
    known = facts(*size, thin=thin)
    zoom = _zoom(known, device, device.cell).value
    assert zoom * thin >= device.cell or zoom == 2
    assert zoom <= 1 or thin < device.cell
    if zoom < 1:
        assert size[0] * size[1] > device.pixels
        smaller = zoom - 1 / 8
        assert smaller * thin < device.cell or smaller**2 * size[0] * size[1] < device.pixels
    height, width = _crop(known, device, zoom).value
    assert height % 32 == width % 32 == 0
    assert height <= device.crop
    low, high = _scale(known, device.cell, zoom).value
    assert 0.5 <= low <= 0.8 < high


@pytest.mark.parametrize(
    ("thin", "low", "reason"),
    [
        (40, 0.5, ""),
        (6, 0.67, "no smaller, so that the thinnest class still fills a cell"),
        (4, 0.8, "the thinnest class fills a cell from scale 1 on, but crops need a range of scales"),
        (0.5, 0.8, "the thinnest class fills a cell from scale 8 on, but crops need a range of scales"),
    ],
)
def test_the_reason_for_the_scale_is_true(thin, low, reason):
    found = _scale(facts(thin=thin), 4, 1.0)
    assert (found.value, found.reason) == ((low, 1.5), reason)


def test_the_batch_fits_the_memory():
    assert _batch((320, 320), 1700, 16e9, _CPU).value == 4
    assert _batch((320, 320), 1700, 1.05e9, _CPU).value == 3
    assert _batch((64, 64), 1700, 16e9, _CPU).value == 8
    with pytest.raises(Exception, match=r"0\.1 GB of memory are too little for 2 crops of 320×320: these need 0\.7 GB"):
        _batch((320, 320), 1700, 0.1e9, _CPU)


def test_the_memory_of_a_gpu_is_what_is_free(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (3_000_000_000, 24_000_000_000))
    assert device_memory() == 3e9


def test_steps_grow_with_the_images_and_shrink_with_the_time():
    def steps(images, minutes=None):
        return _steps(facts(images=images), 1.0, (320, 320), 4, 1.0, minutes).value

    assert steps(480) == pytest.approx(2 * steps(240), abs=1)
    assert steps(3) == 200
    assert steps(10**6) == 40_000
    assert steps(240, minutes=10) == 480  # seconds, less a fifth for all else
    assert steps(240, minutes=1e4) == steps(240)


def test_the_measured_memory_is_that_of_the_saved_tensors():
    """Twice as many channels need about twice the memory: the figure is of the network, not a constant."""
    small, large = (bytes_per_pixel(name, 3) for name in ("tiny_model.build_plain", "tiny_model.build"))
    assert 0 < small < large
    module = build_model("tiny_model.build_plain", 3).module.train()
    images = torch.rand(2, 3, 128, 128)
    features = 2 * 8 * 32 * 32 * 4  # after the ReLU, which is also what its backward pass needs
    assert small * 2 * 128**2 == pytest.approx(images.nbytes + features, rel=0.35)
    assert module(images).shape == (2, 3, 32, 32)


def test_the_recipe_loads_and_every_reason_is_a_comment(tmp_path):
    recipe = planned(grey_layout, tmp_path)
    config, text = load_config(recipe), recipe.read_text()
    assert (config.recipe, config.method, config.loss.p) == ("data", "lmp_loss_only", 1.3)
    assert config.loss.m == {"from": "100%", "to": "25%", "steps": config.train.steps // 2}
    assert config.data.intensity == pytest.approx((0, 3945), abs=60)
    assert config.model.name == "losspool.segmentation.models.unet.build"
    assert (
        "# full size; the thinnest class, class 2, is 9 pixels wide, a cell of the network 2 of a zoomed image" in text
    )
    assert "Thickness in pixels: class 0" in text
    assert "losspool train" in text


def test_with_weights_it_plans_a_pretrained_network_with_a_decoder(tmp_path):
    source = tmp_path / "data"
    write_classes(source, {"classes": ["ground", "thing"]})
    for split in ("train", "val"):
        save(source / f"images/{split}/a.png", noise(120, 120))
        save(source / f"labels/{split}/a.png", bar(6, "|"))
    weights = tmp_path / "mine.pth"
    weights.write_bytes(b"")
    data = DataConfig(name="folder", root=str(source))
    plan = make_plan(data, tmp_path / "r.yaml", PlanOptions(weights=weights))
    assert plan["model.name"] == "fpn_mobilenetv2"
    assert plan["model.weights"] == str(weights)
    assert plan["model.batch_norm"] == "train"
    assert plan["data.crop"] == (128, 128)


@pytest.mark.parametrize(("splits", "words"), [(["train"], ()), (["train", "val"], ("--val", "null"))])
def test_a_plan_without_validation(tmp_path, command, splits, words):
    write_classes(tmp_path / "data", {"classes": ["ground", "thing"]})
    for split in splits:
        save(tmp_path / f"data/images/{split}/a.png", noise(32, 32))
        save(tmp_path / f"data/labels/{split}/a.png", bar(6, "|")[:32, 44:76])
    options = ("--scratch", "--minutes", "0.01", "--out", tmp_path / "r.yaml")
    code, output, error = command("plan", tmp_path / "data", *options, *words)
    assert code == 0, error
    assert "data.val = null: no validation" in output
    assert load_config(tmp_path / "r.yaml").data.val is None


def test_the_recipe_states_how_files_are_read(tmp_path, command):
    dataset_of(tmp_path / "data", bar(12, "|"))
    save(tmp_path / "data/images/train/alone.png", noise(120, 120))
    settings = ("data.exif=ignore", "data.intensity=[0, 4095]")
    options = ("--scratch", "--minutes", "0.01", "--out", tmp_path / "r.yaml")
    code, output, error = command("plan", tmp_path / "data", *settings, *options)
    assert code == 0, error
    data = load_config(tmp_path / "r.yaml").data
    assert (data.exif, data.intensity) == ("ignore", (0, 4095))
    check = f"losspool data check folder {tmp_path / 'data'} data.exif=ignore 'data.intensity=[0.0, 4095.0]'"
    assert f"next: {check}, then " in output


def test_images_without_a_usable_label_are_counted_out(tmp_path, command):
    dataset_of(tmp_path / "data", *(bar(12, turn) for turn in "|-/"))
    for number in range(5):
        save(tmp_path / f"data/images/train/alone-{number}.png", noise(120, 120))
    out = tmp_path / "recipe.yaml"
    code, output, _ = command("plan", tmp_path / "data", "--scratch", "--out", out)
    assert code == 0
    assert output.count("alone-") == 1
    assert "warning: 5 images cannot be used, such as " in output
    assert f"next: losspool data check folder {tmp_path / 'data'}, then losspool train {out}" in output
    assert "Planned for 3 images of 120×120" in out.read_text()


def test_a_step_is_timed_with_the_threads_of_the_training(tmp_path, command, monkeypatch):
    data = tmp_path / "data"
    write_classes(data, {"classes": ["ground", "thing"]})
    save(data / "images/train/a.png", noise(32, 32))
    save(data / "labels/train/a.png", bar(6, "|")[:32, 44:76])
    timed = []
    monkeypatch.setattr(plan_module, "seconds_per_step", lambda *_: timed.append(torch.get_num_threads()) or 1.0)
    before = torch.get_num_threads()
    try:
        code, output, error = command("plan", data, "--scratch", "--threads", "3", "--out", tmp_path / "r.yaml")
    finally:
        torch.set_num_threads(before)
    assert code == 0, error
    assert timed == [3]
    assert output.rstrip().endswith(f"{tmp_path / 'r.yaml'} --threads 3")
    assert f"losspool train {tmp_path / 'r.yaml'} --threads 3\n" in (tmp_path / "r.yaml").read_text()


def test_mistakes_are_one_sentence(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planned(mask_layout, tmp_path)
    (tmp_path / "taken.yaml").write_text("")
    for words, message in {
        ("nowhere", "--out", "x.yaml"): "nowhere: the root of the data does not exist",
        (
            "raw",
            "--out",
            "x.yaml",
        ): "raw: no split of folder found; it has the layout images/*.jpg + masks/*.png; run: "
        "losspool data import raw DEST",
        ("data", "--out", "taken.yaml"): "taken.yaml: the file exists; name another one with --out",
        (
            "data",
            "--val",
            "tset",
            "--out",
            "x.yaml",
        ): "data: unknown split 'tset'; choose from train, val with --val, or null for none",
        ("data", "--out", "no/x.yaml"): "no: the folder of --out does not exist",
        ("data", "--minutes", "-3", "--out", "x.yaml"): "--minutes must be greater than 0, got -3",
        ("data", "--memory", "0", "--out", "x.yaml"): "--memory must be greater than 0, got 0",
        ("data", "--weights", "no.pth", "--out", "x.yaml"): "no.pth: no such weights file; download https://",
        (
            "data",
            "data.zoom=2",
            "--out",
            "x.yaml",
        ): "only data.exif and data.intensity can be set here, got 'data.zoom'",
        (
            "data",
            "--scratch",
            "--weights",
            "no.pth",
            "--out",
            "x.yaml",
        ): "--scratch plans a network without weights; drop it or --weights no.pth",
        ("data", "--scratch", "--memory", "0.000001", "--out", "x.yaml"): "1e-06 GB of memory are too little",
    }.items():
        code, _, error = command("plan", *words)
        assert code == 2
        assert error.startswith(f"error: {message}")
        assert error.count("\n") == 1
    assert not (tmp_path / "x.yaml").exists()

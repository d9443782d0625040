"""``losspool predict``: what is written, where, and never anywhere else."""

import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import Config, DataConfig
from losspool.segmentation.data import Reading
from losspool.segmentation.data.kinds.cityscapes import LABEL_IDS
from losspool.segmentation.data.protocol import ClassInfo
from losspool.segmentation.prediction.pictures import overlay_image, palette_image, void_color
from losspool.segmentation.prediction.sources import Source, sources_of_files
from losspool.segmentation.prediction.trained_run import TrainedRun
from losspool.segmentation.runs import read_checkpoint
from runs_for_tests import train, write_recipe
from small_data import CLASSES, VOID, save, write_classes, write_folder
from trained_runs import DEEPLAB, MODEL, assert_mistake, picture, random_image, small_config, write_run, written

COLORS = np.array([entry["color"] for entry in CLASSES], np.uint8)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run", small_config(tmp_path / "data"))


@pytest.fixture
def photos(tmp_path):
    """A folder of three images, below folders and under names that are hard on programs."""
    folder = tmp_path / "photos"
    save(folder / "a b.png", random_image(30, 50, seed=1))
    save(folder / "sub/Straße №5.jpg", random_image(31, 47, seed=2))
    save(folder / "sub/deep/[x] 'q'.png", random_image(20, 21, seed=3))
    return folder


def test_formats_of_an_image(tmp_path, run, photos, command):
    path, out = photos / "a b.png", tmp_path / "out"
    formats = ("--format", "index,palette", "--format", "overlay")
    code, output, _ = command("predict", run.path, path, "--out", out, *formats, "--tiling", "efficient", *MODEL)
    assert code == 0
    assert f"1 image predicted: {out}" in output
    assert written(out) == {"a b_index.png", "a b_palette.png", "a b_overlay.png"}
    settings = small_config(tmp_path / "data").evaluate
    opened = TrainedRun.open(run.path, ["tiny_model.build"])
    trained = opened.load(5)
    image = picture(path)
    labels = trained.predictor(type(settings)("efficient"))(image)
    index, palette, overlay = (picture(out / f"a b_{kind}.png") for kind in ("index", "palette", "overlay"))
    assert (index.mode, palette.mode, overlay.mode) == ("L", "P", "RGB")
    assert (np.array(index) == labels).all()
    assert (np.array(palette) == labels).all()
    assert (np.array(palette.convert("RGB")) == COLORS[labels]).all()
    mixed = (np.array(image).astype(float) + COLORS[labels]) / 2
    assert np.abs(np.array(overlay) - mixed).max() <= 1
    assert len(np.unique(labels)) > 1


def test_a_folder_keeps_its_paths(tmp_path, run, photos, command):
    (photos / "notes.txt").write_text("no image")
    code, output, _ = command("predict", run.path, photos, "--out", tmp_path / "out", *MODEL)
    assert code == 0
    assert "3 images predicted" in output
    stems = ("a b", "sub/Straße №5", "sub/deep/[x] 'q'")
    kinds = ("ids", "palette", "overlay")
    assert written(tmp_path / "out") == {f"{stem}_{kind}.png" for stem in stems for kind in kinds}
    assert picture(tmp_path / "out/sub/Straße №5_palette.png").size == (47, 31)


IDS = np.array([entry["id"] for entry in CLASSES])


@pytest.mark.parametrize("ids", [(0, 2, 7), (0, 300, 65535)])
def test_ids_are_the_values_of_ones_own_label_files(tmp_path, photos, command, ids):
    """Written as the run's data define them, or as its checkpoint knows them if the data are gone."""
    content = [{**entry, "id": value} for entry, value in zip(CLASSES, ids, strict=True)]
    config = small_config(tmp_path / "data")
    write_classes(tmp_path / "data", {"classes": content, "ignore": VOID})
    known = write_run(tmp_path / "new", config, classes=[info.to_dict() for info in config.data.open("train").classes])
    old = write_run(tmp_path / "old", config)
    for number, run in enumerate((known, old)):
        options = ("--out", tmp_path / str(number), "--format", "index", "--ids", *MODEL)
        assert command("predict", run.path, photos, *options)[0] == 0
        index, found = (picture(tmp_path / str(number) / f"a b_{kind}.png") for kind in ("index", "ids"))
        assert (np.array(found) == np.array(ids)[np.array(index)]).all()
        assert len(np.unique(found)) > 1
    shutil.rmtree(tmp_path / "data")
    assert command("predict", known.path, photos, "--out", tmp_path / "gone", "--ids", *MODEL)[0] == 0
    assert_mistake(
        command("predict", old.path, photos, "--out", tmp_path / "none", "--ids", *MODEL),
        "its checkpoint does not hold the label values, and its data cannot be read",
    )
    assert command("predict", old.path, photos, "--out", tmp_path / "none", *MODEL)[0] == 0
    assert "a b_ids.png" not in written(tmp_path / "none")


def test_a_training_keeps_the_ids(tmp_path):
    train(write_recipe(tmp_path, steps=1), tmp_path / "run")
    stored = read_checkpoint(tmp_path / "run/checkpoints/step-0000001.pt")["classes"]
    assert [entry["id"] for entry in stored] == IDS.tolist()


def test_photos_are_predicted_upright(tmp_path, run, command):
    """A phone stores a portrait as a landscape with the orientation 6: turn it by 90 degrees."""
    upright = Image.fromarray(random_image(40, 24, seed=5))
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.save(tmp_path / "plain.png")
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "phone.png", exif=exif)
    for name in ("plain", "phone"):
        assert command("predict", run.path, tmp_path / f"{name}.png", "--out", tmp_path / "out", *MODEL)[0] == 0
    for kind in ("ids", "overlay"):
        files = [(tmp_path / f"out/{name}_{kind}.png").read_bytes() for name in ("plain", "phone")]
        assert files[0] == files[1]
    assert picture(tmp_path / "out/phone_ids.png").size == (24, 40)


def test_a_black_background_leaves_the_image_bright():
    classes = [ClassInfo("background", (0, 0, 0)), ClassInfo("weed", (255, 0, 0))]
    image, labels = random_image(4, 6, seed=1), np.array([[0, 1] * 3] * 4, np.uint8)
    found = np.array(overlay_image(Image.fromarray(image), labels, classes))
    assert (found[labels == 0] == image[labels == 0]).all()
    assert np.abs(found[labels == 1] - (image[labels == 1] / 2 + [127.5, 0, 0])).max() <= 1


def test_void_is_never_the_colour_of_a_class():
    names = [ClassInfo("a", (9, 9, 9)), ClassInfo("b", (224, 224, 192)), ClassInfo("c", (255, 0, 0))]
    assert void_color(names[2:]) == (0, 0, 0)
    assert void_color([names[0], names[2]]) == (224, 224, 192)
    assert void_color(names) == (255, 255, 255)
    picture = palette_image(np.array([[0, 1, 2, 255]], np.uint8), names).convert("RGB")
    assert len(np.unique(np.array(picture).reshape(-1, 3), axis=0)) == 4


def test_a_broken_image_does_not_stop_the_others(tmp_path, run, photos, command):
    broken = photos / "broken \x1b[31m.png"
    broken.write_bytes((photos / "a b.png").read_bytes()[:100])
    code, output, error = command("predict", run.path, photos, "--out", tmp_path / "out", "--format", "index", *MODEL)
    assert code == 1
    assert "3 images predicted" in output
    assert len(written(tmp_path / "out")) == 3
    assert re.fullmatch(r"fault: .*broken \\x1b\[31m\.png: the image cannot be decoded .*\n", error)
    assert_mistake(command("predict", run.path, broken, "--out", tmp_path / "out", *MODEL), "cannot be decoded")


def test_faults_are_reported_by_kind(tmp_path, run, photos, command):
    for number in range(8):
        Image.fromarray(np.full((9, 9), 900, np.uint16)).save(photos / f"deep {number}.png")
    (photos / "broken.png").write_bytes((photos / "a b.png").read_bytes()[:100])
    out = tmp_path / "out"
    code, output, error = command("predict", run.path, photos, "--out", out, "--format", "index", *MODEL)
    assert code == 1
    assert "3 images predicted" in output
    lines = error.splitlines()
    assert len(lines) == 1 + 3 + 1 + 1
    assert all(line.startswith("fault: ") for line in lines)
    assert "fault: 5 more like these, 8 in all" in lines
    assert lines[-1] == f"fault: all 9 faults are listed in {out / 'faults.txt'}"
    listed = (out / "faults.txt").read_text()
    assert all(listed.count(f"deep {number}.png: the image has more than 8 bits") == 1 for number in range(8))


def test_predictions_inside_the_images_folder_are_not_predicted_again(tmp_path, run, photos, command):
    before = written(photos)
    for _ in range(2):
        code, output, _ = command("predict", run.path, photos, "--out", photos / "out", "--format", "index", *MODEL)
        assert code == 0
        assert "3 images predicted" in output
    assert len(written(photos)) == len(before) + 3


def test_images_of_the_runs_data(tmp_path, run, command):
    out = tmp_path / "out"
    code, *_ = command("predict", run.path, "--split", "val", "--out", out, "--format", "index", *MODEL)
    assert code == 0
    assert written(out) == {"000_index.png", "001_index.png", "002_index.png"}
    names = ("--name", "001", "--name", "000")
    code, output, _ = command("predict", run.path, *names, "--out", tmp_path / "two", *MODEL)
    assert "2 images predicted" in output
    assert_mistake(command("predict", run.path, "--name", "9", "--out", out, *MODEL), "data/val: there is no image '9'")


def test_ids_for_the_cityscapes_benchmark(tmp_path, command):
    from cityscapes_data import write_cityscapes

    data = write_cityscapes(tmp_path / "data", count=2)
    config = Config(data=DataConfig("cityscapes", str(data), train="val"), model=DEEPLAB)
    folder = write_run(tmp_path / "run", config, split="val")
    frames = data / "leftImg8bit/val"
    for number, source in enumerate(([frames], ["--split", "val"])):
        out = tmp_path / f"out {number}"
        assert command("predict", folder.path, *source, "--out", out, "--format", "cityscapes")[0] == 0
        predict = TrainedRun.open(folder.path).load(5).predictor(config.evaluate)
        for frame in frames.rglob("*.png"):
            core = frame.name.removesuffix("_leftImg8bit.png")
            (made,) = out.rglob(f"{core}*.png")  # the official script wants one per frame
            assert (np.array(picture(made)) == np.array(LABEL_IDS)[predict(picture(frame))]).all()
    for more in (("--format", "palette"), ("--weights",)):
        result = command("predict", folder.path, "--split", "val", "--out", out, "--format", "cityscapes", *more)
        assert_mistake(result, "must be alone")


def test_a_link_in_the_output_folder_leads_nowhere(tmp_path, run, photos, command):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir(), elsewhere.mkdir()
    (out / "sub").symlink_to(elsewhere)
    result = command("predict", run.path, photos, "--out", out, *MODEL)
    assert_mistake(result, "sub/Straße №5: its predictions would be outside")
    assert written(elsewhere) == set()
    (out / "a b_index.png").symlink_to(photos / "a b.png")
    before = (photos / "a b.png").read_bytes()
    assert command("predict", run.path, photos / "a b.png", "--out", out, "--format", "index", *MODEL)[0] == 0
    assert (photos / "a b.png").read_bytes() == before


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/elsewhere/x", "sub/../../x"])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    from losspool.segmentation.prediction.predict_images import predict_images

    image = Image.fromarray(random_image(4, 4))
    source = Source(name, lambda: (image, None))
    with pytest.raises(UserError, match="would be outside"):
        predict_images(lambda image: np.zeros((4, 4), np.uint8), [source], tmp_path / "out", ["index"], [])
    assert written(tmp_path) == set()


def test_a_prediction_never_takes_the_place_of_an_image(tmp_path, run, command):
    save(tmp_path / "photos/sub/sub/x.png", random_image(9, 9))
    save(tmp_path / "photos/sub/x_index.png", random_image(9, 9, seed=1))
    before = (tmp_path / "photos/sub/x_index.png").read_bytes()
    arguments = (tmp_path / "photos/sub", "--out", tmp_path / "photos", "--format", "index")
    assert_mistake(command("predict", run.path, *arguments, *MODEL), "would overwrite an image")
    assert (tmp_path / "photos/sub/x_index.png").read_bytes() == before


def test_sources_of_a_folder(tmp_path):
    save(tmp_path / "in/a.png", random_image(3, 4))
    save(tmp_path / "in/.hidden.png", random_image(3, 4))
    (source,) = sources_of_files(tmp_path / "in", tmp_path / "out", Reading())
    assert (source.name, source.read()[0].size) == ("a", (4, 3))
    os.symlink(tmp_path / "in", tmp_path / "link")
    with pytest.raises(UserError, match="cannot go to the folder of the images"):
        sources_of_files(tmp_path / "in", tmp_path / "link", Reading())


def test_labels_are_not_predicted_beside_images(tmp_path, capsys):
    """Nor if the images are of a format that is not read. A folder of nothing else is taken as it is."""
    save(tmp_path / "in/masks/a.png", np.zeros((3, 4)))
    (source,) = sources_of_files(tmp_path / "in", tmp_path / "out", Reading())
    assert source.name == "masks/a"
    (tmp_path / "in/images").mkdir()
    (tmp_path / "in/images/a.heic").write_bytes(b"ftypheic")
    with pytest.raises(UserError, match=r"no images found .*; files of other formats are not read \(1 × \.heic\)"):
        sources_of_files(tmp_path / "in", tmp_path / "out", Reading())
    save(tmp_path / "in/images/b.png", random_image(3, 4))
    capsys.readouterr()
    (source,) = sources_of_files(tmp_path / "in", tmp_path / "out", Reading())
    assert source.name == "images/b"
    said = capsys.readouterr().err
    assert "skipped: 1 file in folders of labels" in said
    assert "skipped: files of other formats are not read (1 × .heic)" in said


def test_labels_side_by_side_with_their_images_are_not_predicted(tmp_path, capsys):
    for name in ("0.jpg", "0_mask.png", "sub/b.png", "sub/b_L.png", "sub/c_mask.png", "b_gt.png"):
        save(tmp_path / "in" / name, random_image(3, 4))
    found = [source.name for source in sources_of_files(tmp_path / "in", tmp_path / "out", Reading())]
    assert found == ["0", "b_gt", "sub/b", "sub/c_mask"]  # the image of these two is in another folder, or nowhere
    assert "skipped: 2 labels beside their images" in capsys.readouterr().err


def test_an_image_of_more_bits_than_the_runs_is_to_be_converted(tmp_path, run, command):
    """No option of the command could say what its range is."""
    Image.fromarray(np.arange(2500, dtype=np.uint16).reshape(50, 50)).save(tmp_path / "deep.png")
    sentence = (
        "deep.png: the image has more than 8 bits, those that the run was trained on have 8; convert it to 8 bits"
    )
    assert_mistake(command("predict", run.path, tmp_path / "deep.png", "--out", tmp_path / "out", *MODEL), sentence)


def test_weights_need_the_networks_classes(tmp_path, run, command):
    write_classes(tmp_path / "data", {"classes": [CLASSES[0], CLASSES[2], CLASSES[1]], "ignore": 255})
    image = tmp_path / "data/images/val/000.png"
    result = command("predict", run.path, image, "--weights", "--out", tmp_path / "out", *MODEL)
    assert_mistake(result, "data/val: its classes are soil, crop plant, weed, the network's are soil, weed, crop plant")


def test_weights_need_a_label(tmp_path, run, photos, command):
    result = command("predict", run.path, photos / "a b.png", "--weights", "--out", tmp_path / "out", *MODEL)
    assert_mistake(result, "a b.png: not in data/val and data/train, so it has no label")
    (tmp_path / "data/labels/val/002.png").unlink()
    out = ("--weights", "--out", tmp_path / "out", *MODEL)
    assert_mistake(command("predict", run.path, "--name", "002", *out), "images/val/002.png: this image has no label")
    code, output, error = command("predict", run.path, "--split", "val", *out)
    assert code == 1
    assert "2 images predicted" in output
    assert "002.png: this image has no label" in error


MISTAKES = {
    (): "pass an image or a folder, or images of the run's own data",
    ("nothing here",): "nothing here: there is no such image or folder",
    ("hollow",): "hollow: no images found (.png, .jpg",
    ("photos", "--name", "001"): "either photos, or images of the run's own data",
    ("photos", "--split", "val"): "either photos, or images of the run's own data",
    ("photos", "--format", "gif"): "a format is one of index, ids, palette, overlay, cityscapes, got 'gif'",
    ("photos", "--format", "cityscapes"): "needs a network of Cityscapes' 19 classes",
    ("photos", "--checkpoint", "5,7"): "no checkpoint of step 7",
    ("photos", "--tiling", "wide"): "evaluate.tiling must be one of",
    ("photos", "--out", "photos"): "photos: predictions cannot go to the folder of the images",
    ("photos", "--out", "photos/sub/.."): "predictions cannot go to the folder of the images",
    ("photos", "--out", "photos/a b.png"): "photos/a b.png: a file is in the way",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes(tmp_path, run, photos, command, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hollow").mkdir()
    before = written(photos)
    out = () if "--out" in arguments else ("--out", "out")
    assert_mistake(command("predict", "run", *arguments, *out, *MODEL), MISTAKES[arguments])
    assert written(photos) == before
    assert not (tmp_path / "out").exists()


def test_two_images_that_differ_in_their_suffix_alone(tmp_path, run, command):
    for suffix in ("png", "jpg"):
        save(tmp_path / f"photos/a.{suffix}", random_image(8, 8))
    result = command("predict", run.path, tmp_path / "photos", "--out", tmp_path / "out", *MODEL)
    assert_mistake(result, "a.png: differs from a.jpg only in its suffix")


def test_a_network_of_more_checkpoints_than_one(tmp_path, command):
    write_folder(tmp_path / "data", "train", count=1)
    run = write_run(tmp_path / "run", small_config(tmp_path / "data"), steps=(5, 6))
    arguments = ("predict", run.path, "--name", "000", "--out", tmp_path / "out", "--checkpoint", "5,6", *MODEL)
    assert_mistake(command(*arguments), "checkpoint must be a single one, got '5,6'")

"""``losspool data check`` warns where a result would be wrong in silence; with its advice, the data are right."""

import shutil

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base import BrokenFileError
from losspool.segmentation.data import Reading, open_dataset, read_image, read_pair
from raw_downloads import DOWNLOADS, scene
from runs_for_tests import train, write_recipe
from small_data import label_values, noise, save, write_classes, write_folder


@pytest.fixture
def root(tmp_path):
    """A sound dataset with a validation split of its own."""
    write_folder(tmp_path / "data", "train", count=4)
    for number in range(2):
        save(tmp_path / f"data/images/val/{number}.png", noise(40, 60, seed=100 + number))
        save(tmp_path / f"data/labels/val/{number}.png", label_values(40, 60, seed=100 + number))
    return tmp_path / "data"


def warnings(command, root, code=0):
    found, output, _ = command("data", "check", "folder", root)
    assert found == code, output
    return [line.removeprefix("warning: ") for line in output.splitlines() if line.startswith("warning: ")]


def test_sound_data_give_no_warning(root, command):
    assert warnings(command, root) == []


@pytest.fixture
def recipe(tmp_path):
    """For data whose classes are easy to tell apart: a dark ground with a large bright square and a bar."""
    path = write_recipe(tmp_path, steps=60, batch=4, validate_every=60, lr=0.1)
    root = tmp_path / "data"
    shutil.rmtree(root)
    write_classes(root, {"classes": ["ground", "thing", "bar"], "ignore": 255})
    for split, seeds in (("train", range(6)), ("val", range(6, 9))):
        for seed in seeds:
            image, classes = scene(seed)
            save(root / f"images/{split}/{seed}.png", image)
            save(root / f"labels/{split}/{seed}.png", classes)
    return path


def score(recipe, *overrides):
    """The mIoU of a short training."""
    run = recipe.parent / "run"
    shutil.rmtree(run, ignore_errors=True)
    return train(recipe, run, *overrides).state.best["miou"]


def relabel(root, change):
    for path in sorted(root.rglob("labels/*/*.png")):
        save(path, change(np.asarray(Image.open(path)).copy()))


def test_a_class_that_no_image_holds_takes_nothing_from_the_others(recipe, command):
    root = recipe.parent / "data"
    relabel(root, lambda label: np.where(label == 2, 0, label))
    assert "no image of train holds 'bar': 1 of 3 classes cannot be learnt" in warnings(command, root)
    assert score(recipe) > 0.9


def test_labels_of_the_right_ids_train_where_others_were_all_background(recipe, command):
    root = recipe.parent / "data"
    shutil.copytree(root / "labels", root / "right")
    relabel(root, lambda label: 0 * label)
    found = warnings(command, root)
    assert "the only class in train is 'ground'; check that the label files hold the ids of the other classes" in found
    shutil.rmtree(root / "labels")
    (root / "right").rename(root / "labels")
    assert warnings(command, root) == []
    assert score(recipe) > 0.9


def test_an_image_in_train_and_val_is_gone_when_its_copy_is(recipe, command):
    """A wrong label of the copy in val costs score; without the copy there is neither warning nor cost."""
    root = recipe.parent / "data"
    shutil.copy(root / "images/train/2.png", root / "images/val/2.png")
    save(root / "labels/val/2.png", np.full((64, 96), 2))
    assert warnings(command, root) == ["1 image of val is also in train, which inflates the score of val: 2 = 2"]
    with_copy = score(recipe)
    for folder in ("images", "labels"):
        (root / folder / "val/2.png").unlink()
    assert warnings(command, root) == []
    assert score(recipe) > max(0.9, with_copy)


def test_labels_drawn_on_stored_pixels_train_with_the_setting_that_is_advised(recipe, command):
    root = recipe.parent / "data"
    for path in sorted(root.rglob("images/*/*.png")):
        Image.open(path).save(path.with_suffix(".jpg"), quality=95, exif=exif(3))
        path.unlink()
    assert all("set data.exif=ignore if it was on the stored pixels" in each for each in warnings(command, root))
    assert score(recipe) < 0.8
    assert score(recipe, "data.exif=ignore") > 0.9


def test_floats_and_12_bits_train_as_8_bits_do(recipe, command):
    root = recipe.parent / "data"
    write_classes(root, {"classes": ["ground", "thing"]})
    relabel(root, lambda label: label == 1)
    for number, path in enumerate(sorted(root.rglob("images/*/*.png"))):
        label = np.asarray(Image.open(root / "labels" / path.parent.name / path.name))
        grey = np.random.default_rng(number).normal(np.array([300, 3600])[label], 150).clip(0, 4095)
        if number % 2:
            Image.fromarray(grey.astype(np.float32)).save(path.with_suffix(".tif"))
            path.unlink()
        else:
            Image.fromarray(grey.astype(np.uint16)).save(path)
    code, output, _ = command("data", "check", "folder", root)
    assert code == 0
    assert "float grey" in output
    assert "warning" not in output
    assert score(recipe) > 0.9
    assert score(recipe, "data.intensity=[0,65535]") < 0.9  # as 16 bits are read without a look at the data


def test_a_class_that_a_split_does_not_hold(root, command):
    for split, files in (("train", 4), ("val", 2)):
        for path in sorted((root / "labels" / split).iterdir())[:files]:
            values = np.asarray(Image.open(path)).copy()
            values[values == 7] = 0
            save(path, values)
    assert warnings(command, root) == [
        "no image of train holds 'crop plant': 1 of 3 classes cannot be learnt",
        "no image of val holds 'crop plant': 1 of 3 classes has no score",
    ]


def test_void_that_is_the_foreground(tmp_path, command, capsys):
    """Masks of 0 and 255, and the ``ignore: 255`` of everybody's example."""
    recipe = write_recipe(tmp_path, steps=30, batch=4, validate_every=30)
    classes = [{"name": "background", "id": 0}, {"name": "thing", "id": 1}]
    root = tmp_path / "data"
    write_classes(root, {"classes": classes, "ignore": 255})
    for path in [*root.rglob("images/*/*.png")]:
        mask = np.zeros((40, 60), np.uint8)
        mask[5:30, 10:35] = 255
        save(path, np.where(mask[..., None] > 0, 220, 30) + noise(40, 60, seed=int(path.stem)) // 16)
        save(root / "labels" / path.parent.name / path.name, mask)
    found = warnings(command, root)
    alone = "the only class in train is 'background'; check that the label files hold the ids of the other classes"
    assert alone in found
    question = "is 255 your foreground? Then write `id: 255` for its class, and another `ignore`"
    void = f"26 % of the pixels of train are void; {question}"
    assert void in found
    code, output, _ = command("plan", root, "--scratch", "--minutes", "0.01", "--out", tmp_path / "plan.yaml")
    assert code == 0
    assert f"warning: {alone}\nwarning: {void}\n" in output
    assert "the rarest class, background, has 100 % of the pixels" in output
    train(recipe, tmp_path / "wrong", "train.steps=1")
    assert f"warning: {alone}; {void}\n" in capsys.readouterr().err
    write_classes(root, {"classes": [classes[0], {"name": "thing", "id": 255}], "ignore": 254})
    assert not [each for each in warnings(command, root) if "void" in each or "class" in each]
    trained = train(recipe, tmp_path / "run", "train.lr=0.1")
    assert trained.state.best["miou"] > 0.8


def test_a_split_of_background_alone(root, command):
    for path in (root / "labels/val").iterdir():
        save(path, np.zeros((40, 60)))
    assert warnings(command, root) == [
        "the only class in val is 'soil'; check that the label files hold the ids of the other classes"
    ]


def test_the_same_image_in_train_and_val(root, command):
    image = noise(40, 60, seed=2)  # that of train/002, in another format
    save(root / "images/val/again.bmp", image)
    save(root / "labels/val/again.png", label_values(40, 60))
    assert warnings(command, root) == ["1 image of val is also in train, which inflates the score of val: 002 = again"]


def test_the_same_deep_image_in_splits_of_other_ranges(root, command):
    """All splits are read with the range of the training images, as training does."""
    for split in ("train", "val"):
        for path in (root / f"images/{split}").iterdir():
            top = 4000 if split == "train" else 2000
            values = np.random.default_rng(int(path.stem)).integers(100, top, (40, 60))
            Image.fromarray(values.astype(np.uint16)).save(path)
    shutil.copy(root / "images/train/001.png", root / "images/val/again.png")
    save(root / "labels/val/again.png", label_values(40, 60))
    assert warnings(command, root) == ["1 image of val is also in train, which inflates the score of val: 001 = again"]


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def test_orientations_are_reported_and_misfits_explained(root, command):
    save(root / "images/val/upright.jpg", noise(40, 60), exif=exif(6))
    save(root / "labels/val/upright.png", label_values(60, 40))
    code, output, _ = command("data", "check", "folder", root)
    assert code == 0
    assert "note: the EXIF orientation of 1 image and 0 labels is applied" in output
    save(root / "images/val/stored.jpg", noise(40, 60, seed=3), exif=exif(6))
    save(root / "labels/val/stored.png", label_values(40, 60))
    found = warnings(command, root, code=1)
    assert len(found) == 1
    assert found[0].startswith("1 label fits the stored pixels of the image and not the upright ones: turn the labels ")
    assert found[0].endswith("or set data.exif=ignore in the recipe")
    index = list(open_dataset("folder", root, "val").names).index("stored")
    read_pair(open_dataset("folder", root, "val", reading=Reading("ignore")), index)


@pytest.mark.parametrize(("orientation", "size"), [(3, (40, 60)), (6, (50, 50))])
def test_labels_that_fit_both_ways_are_a_warning(root, command, orientation, size):
    """Until a label of the split shows by its size that labels were drawn upright."""
    for seed in range(2):
        save(root / f"images/val/turned{seed}.jpg", noise(*size, seed=seed + 20), exif=exif(orientation))
        save(root / f"labels/val/turned{seed}.png", label_values(*size))
    (found,) = warnings(command, root)
    assert found.startswith(
        "2 labels of images with an EXIF orientation may have been drawn on the upright image or on "
    )
    assert "data.exif=ignore" in found
    for words in (("folder", root), (root,)):
        code, output, _ = command("data", "check", *words, "data.exif=ignore")
        assert code == 0
        assert "warning" not in output
        assert "note: the EXIF orientation of 2 images is ignored" in output
        assert output.endswith(f"\nnext: losspool plan {root} data.exif=ignore\n")
    save(root / "images/val/upright.jpg", noise(40, 60, seed=30), exif=exif(6))
    save(root / "labels/val/upright.png", label_values(60, 40))
    assert warnings(command, root) == []


def test_bits_and_range_are_reported(root, command):
    for path in (root / "images/train").iterdir():
        Image.fromarray(np.random.default_rng(0).integers(100, 4000, (40, 60)).astype(np.uint16)).save(path)
    code, output, _ = command("data", "check", "folder", root)
    assert code == 0
    assert "note: images: 4 × 16-bit grey" in output
    assert "note: data.intensity reads the values 10" in output


def test_images_that_are_nearly_black(root, command):
    for path in (root / "images/train").iterdir():
        save(path, noise(40, 60, seed=int(path.stem)) // 16)
    (found,) = warnings(command, root)
    assert found.startswith(
        "the images of train are nearly black: no value exceeds 15 of 255; rescale the files, because "
    )


def test_deep_images_that_a_range_makes_nearly_black(root, command):
    for path in (root / "images/train").iterdir():
        Image.fromarray(np.random.default_rng(0).integers(100, 4000, (40, 60)).astype(np.uint16)).save(path)
    _, output, _ = command("data", "check", root, "data.intensity=full", "--split", "train")
    assert "nearly black: no value exceeds 15 of 255; set data.intensity to the range of their values" in output
    _, output, _ = command("data", "check", "folder", root, "data.intensity=[0,4000]", "--split", "train")
    assert "note: data.intensity reads the values 0 to 4000 as black to white" in output
    assert "nearly black" not in output


def test_pages_and_channels(root, command, tmp_path):
    """Of several pages the first is read, with a warning; channels that would be left out are refused."""
    pages = [Image.fromarray(noise(40, 60, seed=seed)) for seed in (50, 51)]
    pages[0].save(root / "images/val/stack.tif", save_all=True, append_images=pages[1:])
    save(root / "labels/val/stack.png", label_values(40, 60))
    assert warnings(command, root) == ["1 image has several pages; only the first is read"]
    for channels, bits, colour, words in (
        (5, 8, False, "a TIFF of 5 channels with 8 bits, which Pillow cannot read"),
        (5, 8, True, "a TIFF of 5 channels, of which only some would be read"),
        (2, 8, False, "a TIFF of 2 channels, of which only some would be read"),
        (3, 16, False, "a TIFF of 3 channels with 16 bits, which Pillow cannot read"),
    ):
        with pytest.raises(BrokenFileError, match=rf"many\.tif: {words}; store images with 1 or 3 channels of 8 bits"):
            read_image(many_channels(tmp_path / "many.tif", channels, bits, colour))


def many_channels(path, channels, bits, colour):
    """A TIFF of 2×2 pixels, written by hand: little-endian, one strip, photometric BlackIsZero or RGB."""
    size = 4 * channels * bits // 8
    tags = {256: 2, 257: 2, 258: bits, 259: 1, 262: 2 if colour else 1, 273: 200, 277: channels, 278: 2, 279: size}
    extra = channels - (3 if colour else 1)
    entries = b"".join(
        tag.to_bytes(2, "little") + (4).to_bytes(2, "little") + (1).to_bytes(4, "little") + value.to_bytes(4, "little")
        for tag, value in tags.items()
    )
    entries += (338).to_bytes(2, "little") + (3).to_bytes(2, "little") + extra.to_bytes(4, "little") + bytes(4)
    head = b"II*\0" + (8).to_bytes(4, "little") + (len(tags) + 1).to_bytes(2, "little") + entries + bytes(4)
    path.write_bytes(head.ljust(200, b"\0") + bytes(size))
    return path


def test_values_that_are_not_numbers(root, command):
    for number, path in enumerate(sorted((root / "images/train").iterdir())):
        values = np.random.default_rng(number).random((40, 60), np.float32)
        values[:5] = np.nan if number == 0 else values[:5]
        path.unlink()
        Image.fromarray(values).save(path.with_suffix(".tif"))
    found = warnings(command, root)
    assert found == ["1 image holds values that are not numbers (NaN); they are read as black, so label them as void"]


@pytest.mark.parametrize("name", DOWNLOADS)
def test_another_layout_is_named_with_the_command_that_takes_it(tmp_path, command, name):
    source = DOWNLOADS[name](tmp_path / "raw")
    code, output, error = command("data", "check", source)
    assert code in (1, 2)
    assert " layout " in output + error
    assert f"; run: losspool data import {source} DEST" in output + error


@pytest.mark.parametrize(
    "words", [("data", "check", "{}", "--split", "train"), ("train", "camvid", "data.name=folder", "data.root={}")]
)
def test_every_command_that_needs_classes_names_the_import(tmp_path, command, words):
    source = DOWNLOADS["COCO"](tmp_path / "raw")
    code, _, error = command(*(word.format(source) for word in words))
    assert code == 2
    assert error.startswith(f"error: {source}: there is no classes.yaml; it has the layout COCO")
    assert error.endswith(f"; run: losspool data import {source} DEST\n")


def test_folders_that_say_nothing_are_to_be_named(tmp_path, command):
    for name in ("foo", "bar"):
        save(tmp_path / f"raw/{name}/0.png", np.zeros((4, 5)))
    code, _, error = command("data", "check", tmp_path / "raw")
    assert code == 2
    assert f"losspool data import {tmp_path / 'raw'} DEST --images FOLDER --labels FOLDER" in error


def test_the_value_255_may_be_void_or_a_class(root, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_classes(root, {"classes": ["soil", "stone", "weed", *"abcdef"]})
    code, output, _ = command("data", "check", root)
    assert code == 1
    advice = "write `ignore: 255` in classes.yaml if it is void, or `id: 255` for its class"
    assert f"the label value 255 is neither a class id nor void; {advice}" in output


def test_a_sound_check_names_the_next_command(root, command):
    assert command("data", "check", root)[1].endswith(f"\nnext: losspool plan {root}\n")
    shutil.copy(root / "images/train/000.png", root / "images/val/copy.png")
    save(root / "labels/val/copy.png", label_values(40, 60))
    then = f"\nnext: look at the warnings above, then losspool plan {root}\n"
    assert command("data", "check", root)[1].endswith(then)
    relabel(root, lambda label: 0 * label)
    assert command("data", "check", root)[1].endswith(then)
    save(root / "labels/val/0.png", np.zeros((4, 5)))
    assert "next:" not in command("data", "check", root)[1]


def test_many_faults_are_reported_by_kind(root, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(20):
        save(root / f"images/train/x{number:02}.png", noise(40, 60, seed=number + 200))
        save(root / f"labels/train/x{number:02}.png", np.full((40, 60), 100 + number))
    (root / "labels/train/000.png").unlink()
    code, output, _ = command("data", "check", "folder", root)
    faults = [line for line in output.splitlines() if line.startswith("fault: ")]
    assert code == 1
    assert len(faults) == 1 + 3 + 1 + 1
    assert "fault: 17 more like these, 20 in all" in faults
    assert "fault: all 21 faults are listed in data-train-faults.txt" in faults
    assert len((tmp_path / "data-train-faults.txt").read_text().splitlines()) == 21
    assert "images 24, faults 21" in output


def test_a_fault_of_the_classes_is_said_once(root, command):
    write_classes(root, {"classes": []})
    code, output, _ = command("data", "check", "folder", root)
    assert code == 1
    assert output.count("'classes' must be a list") == 1
    assert "no name says which are labels" not in output

"""``losspool data import``: classes, colours, splits; the source stays as it is."""

import hashlib
import re
import shutil

import numpy as np
import pytest
import yaml
from PIL import Image

from losspool.segmentation.data import open_dataset, read_pair
from losspool.segmentation.data.kinds.registry import splits_of
from raw_downloads import COLORS, DOWNLOADS, SIZE, colour_layout, grey_layout, mask_layout, phone_layout, scene
from small_data import noise, save


def tree(folder):
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", DOWNLOADS)
def test_the_source_is_unchanged_and_every_pixel_arrives(tmp_path, command, name):
    source, dest = DOWNLOADS[name](tmp_path / "raw"), tmp_path / "data"
    before = tree(source)
    code, output, error = command("data", "import", source, dest)
    assert (code, error) == (0, "")
    assert tree(source) == before
    assert f"next: losspool data check {dest}, then losspool plan {dest}" in output
    assert command("data", "check", "folder", dest)[0] == 0
    total = 0
    for split in splits_of("folder", dest):
        dataset = open_dataset("folder", dest, split)
        for index, image_name in enumerate(dataset.names):
            image, label = read_pair(dataset, index)
            assert image.size == SIZE[::-1]
            classes = scene(int(re.search(r"\d+$", image_name)[0]))[1]
            if name == "0/255 masks":
                classes = classes == 1
            elif name == "COCO":
                classes = np.array([0, 2, 1])[classes]
            kept = label != 255
            np.testing.assert_array_equal(label[kept], np.asarray(classes)[kept])
            assert kept.mean() > 0.95
            pixels = np.asarray(image, float)
            if name not in ("12-bit greys",):
                for value in range(3):
                    chosen = scene(int(re.search(r"\d+$", image_name)[0]))[1] == value
                    np.testing.assert_allclose(pixels[chosen].mean(0), COLORS[value], atol=30)  # so it is upright
            total += 1
    assert total == (15 if name in ("0/255 masks", "COCO", "12-bit greys") else 16)


def test_masks_of_0_and_255_are_background_and_foreground(tmp_path, command):
    command("data", "import", mask_layout(tmp_path / "raw"), tmp_path / "data")
    content = yaml.safe_load((tmp_path / "data/classes.yaml").read_text())
    assert [(each["name"], each["id"]) for each in content["classes"]] == [("background", 0), ("foreground", 255)]
    assert content["ignore"] not in (0, 255)
    path = next((tmp_path / "data/labels").rglob("*.png"))
    assert set(np.unique(np.asarray(Image.open(path)))) == {0, 255}  # the user's own values


def test_a_palette_image_is_read_by_its_colours_where_the_classes_have_colours_alone(tmp_path, command):
    """Its values are in another order than the list of classes."""
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,200\nroad,120,60,0\n")
    for number in range(3):
        label = Image.fromarray(np.eye(6, dtype=np.uint8)).convert("P")
        label.putdata(np.eye(6, dtype=np.uint8).ravel().tolist())
        label.putpalette([120, 60, 0, 0, 0, 200])
        save(tmp_path / f"raw/images/{number}.png", noise(6, 6))
        (tmp_path / "raw/masks").mkdir(exist_ok=True)
        label.save(tmp_path / f"raw/masks/{number}.png")
    words = ("--classes", tmp_path / "class_dict.csv")
    assert command("data", "import", tmp_path / "raw", tmp_path / "data", *words)[0] == 0
    np.testing.assert_array_equal(open_dataset("folder", tmp_path / "data", "train").label(0), 1 - np.eye(6))


def test_images_are_linked_or_copied(tmp_path, command):
    source = mask_layout(tmp_path / "raw")
    for dest, words in (("links", []), ("copies", ["--copy"])):
        command("data", "import", source, tmp_path / dest, *words)
        path = next((tmp_path / dest / "images").rglob("*.jpg"))
        assert path.is_symlink() == (dest == "links")
        assert path.read_bytes() == (source / "images" / path.name).read_bytes()


def test_the_card_counts(tmp_path, command):
    code, output, _ = command("data", "import", colour_layout(tmp_path / "raw"), tmp_path / "data")
    assert code == 0
    assert "classes: Ground, Thing, Bar (from class_dict.csv)" in output
    text = (tmp_path / "data/README.md").read_text()
    assert "| images | 12 | 4 |" in text
    for label, name in enumerate(("Ground", "Thing", "Bar")):
        shares = re.search(rf"{name}, % of pixels \| ([\d.]+) \| ([\d.]+) \|", text).groups()
        for share, seeds in zip(shares, (range(12), range(12, 16)), strict=True):
            expected = np.mean([(scene(seed)[1][2:] == label).sum() / SIZE[0] / SIZE[1] for seed in seeds])
            assert float(share) == pytest.approx(100 * expected, abs=0.01)


def test_noisy_colours_go_to_the_nearest_class_and_strange_ones_to_void(tmp_path, command):
    source = tmp_path / "raw"
    (tmp_path / "class_dict.csv").write_text("name,r,g,b\nsky,0,0,200\nroad,120,60,0\n")
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, (10, 20, 30))
    for number, label in enumerate(truth):
        colors = np.array([[0, 0, 200], [120, 60, 0]])[label] + random.integers(-9, 10, (20, 30, 3))
        if number == 4:
            colors[3:5, 7:9] = 0, 255, 0
        save(source / f"images/{number}.png", noise(20, 30))
        save(source / f"masks/{number}.png", colors.clip(0, 255))
    words = ("--classes", tmp_path / "class_dict.csv", "--val", "0")
    code, output, _ = command("data", "import", source, tmp_path / "data", "--tolerance", "20", *words)
    assert code == 0
    place = r"most of them \(4\) in .*masks/4\.png, such as \[0, 255, 0\] at row 3, column 7"
    assert re.search(rf"note: 4 pixels \(0\.067 %\) in 1 label matched no class and became void, {place}", output)
    dataset = open_dataset("folder", tmp_path / "data", "train")
    for index, name in enumerate(dataset.names):
        expected = truth[int(name)].copy()
        if name == "4":
            expected[3:5, 7:9] = 255
        np.testing.assert_array_equal(dataset.label(index), expected)
    _, output, _ = command("data", "import", source, tmp_path / "exact", *words)
    assert "matched no class and became void" in output
    assert float(re.search(r"pixels \(([\d.]+) %\)", output)[1]) > 90


@pytest.mark.parametrize("turn", [6, 3])
def test_labels_drawn_on_stored_pixels_are_turned_with_their_image(tmp_path, command, turn):
    """Where sizes show it (6), and for images where they do not (3), as the others of the same source."""
    source = phone_layout(tmp_path / "raw")
    for mask in source.rglob("masks/*.png"):
        image = mask.parent.parent / "images" / f"{mask.stem}.jpg"
        with Image.open(image) as opened:
            quarter = {1: 0, 6: 1, 3: 2, 8: -1}[opened.getexif().get(0x0112, 1)]
        save(mask, np.rot90(np.asarray(Image.open(mask)), quarter))
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 0
    assert "note: 12 images have an EXIF orientation, which is applied on reading; 12 labels were drawn" in output
    dataset = open_dataset("folder", tmp_path / "data", "train")
    wanted = {6: 1, 3: 2}[turn]  # a seed with this orientation
    index = list(dataset.names).index(f"IMG_{wanted}")
    np.testing.assert_array_equal(dataset.label(index), scene(wanted)[1])


@pytest.mark.parametrize("option", [None, "--labels-stored", "--labels-upright"])
def test_labels_that_fit_both_ways_are_taken_as_the_option_says(tmp_path, command, option):
    """Turned by 180°, both have one size. Without an option, a warning says what is assumed."""
    exif = Image.Exif()
    exif[0x0112] = 3
    for number in range(4):
        label = np.zeros((20, 30))
        label[:5] = 1
        save(tmp_path / f"raw/images/{number}.jpg", noise(20, 30, seed=number), exif=exif)
        save(tmp_path / f"raw/masks/{number}.png", label)
    code, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data", *([option] if option else []))
    assert code == 0
    sentence = (
        "warning: 4 labels of images with an EXIF orientation may have been drawn on the upright image or on the "
    )
    assert (sentence in output) == (option is None)
    assert ("--labels-stored" in (tmp_path / "data/README.md").read_text().partition("| images")[2]) == (option is None)
    assert ("no size shows which" in command("data", "check", tmp_path / "data")[1]) == (option is None)
    label = open_dataset("folder", tmp_path / "data", "train").label(0)
    assert label[-5:].all() == (option == "--labels-stored")
    assert label[:5].all() == (option != "--labels-stored")


def test_a_broken_file_is_reported_and_the_rest_imported(tmp_path, command):
    source = mask_layout(tmp_path / "raw")
    (source / "images/3.jpg").write_bytes(b"rubbish")
    save(source / "masks/4.png", np.zeros((5, 6)))
    save(source / "masks/99.png", np.zeros((5, 6)))
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 1
    assert f"fault: {source}/images/3.jpg: not an image that Pillow can read" in output
    assert f"fault: {source}/images/4.jpg: the image is 96×64, its label {source}/masks/4.png 6×5" in output
    assert f"fault: {source}/masks/99.png: this label has no image" in output
    assert sum(len(open_dataset("folder", tmp_path / "data", split)) for split in ("train", "val")) == 13


@pytest.mark.parametrize(("images", "labels"), [(".jpg", ".gif"), (".jpg", ".npy"), (".heic", ".png")])
def test_formats_that_are_not_read_are_named(tmp_path, command, images, labels):
    for number in range(3):
        for folder, suffix in (("images", images), ("masks", labels)):
            path = tmp_path / f"raw/{folder}/{number}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix in (".jpg", ".png"):
                save(path, np.zeros((4, 5)))
            else:
                path.write_bytes(b"something")
    code, _, error = command("data", "import", tmp_path / "raw", tmp_path / "data")
    assert code == 2
    suffix = images if images == ".heic" else labels
    assert f"; files of other formats are not read (3 × {suffix}): convert them to one of .png, .jpg, " in error


def test_cityscapes_needs_no_import(tmp_path, command):
    for split in ("train", "val"):
        save(tmp_path / f"raw/leftImg8bit/{split}/ulm/0_leftImg8bit.png", noise(8, 9))
        save(tmp_path / f"raw/gtFine/{split}/ulm/0_gtFine_labelIds.png", np.zeros((8, 9)))
    advice = f"losspool data check cityscapes {tmp_path / 'raw'}"
    _, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data")
    assert f"note: this is Cityscapes, which needs no import: {advice}" in output
    code, _, error = command("data", "check", tmp_path / "raw")
    assert code == 2
    assert f"it has the layout of Cityscapes; run: {advice}" in error


MISTAKES = {
    ("truncated", "data"): "truncated/annotations.json: cannot be read (Expecting value: line 1 column 13",
    ("raw", "raw/data"): "raw/data: the new folder must not lie in raw, nor around it",
    ("raw", "full"): "full: exists and is not empty; name a new folder",
    ("file.json", "data"): "file.json: the source must be a folder; name the one that holds this file and the images",
    ("raw", "data", "--classes", "no.csv"): "no.csv: the list of classes cannot be read (No such file or directory)",
    ("nowhere", "data"): "nowhere: the source does not exist",
    ("empty", "data"): "empty: no label images found among 0 images",
    ("raw", "data", "--group", "("): "--group must be a regular expression, got '('",
    ("raw", "data", "--group", "x"): "--group 'x' does not match the image",
    (
        "raw",
        "data",
        "--group",
        "p",
    ): "15 images in 1 group cannot be divided into 2 splits; pass --val 0, or another --group",
    ("raw", "data", "--tolerance", "-1"): "--tolerance must be a distance of at least 0, got -1",
    ("raw", "data", "--val", "1.5"): "--val must be a share of the images from 0 to less than 1",
    (
        "raw",
        "data",
        "--classes",
        "names.csv",
    ): "names.csv: line 2 must name a class, with three colours from 0 to 255 or none",
    ("raw", "data", "--list", "list.txt"): "list.txt: there is no labelled image 'nothing'",
}


@pytest.mark.parametrize("words", MISTAKES, ids=" ".join)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, command, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    grey_layout(tmp_path / "raw")
    (tmp_path / "full/x").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "names.csv").write_text("name,r,g,b\nsky,1,2\n")
    (tmp_path / "list.txt").write_text("nothing\n")
    (tmp_path / "file.json").write_text("{}")
    save(tmp_path / "truncated/images/0.png", noise(4, 5))
    (tmp_path / "truncated/annotations.json").write_text('{"images": [')
    before = sorted(tmp_path.rglob("*"))
    code, _, error = command("data", "import", *words)
    assert code == 2
    assert error.startswith(f"error: {MISTAKES[words]}")
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_split_that_could_not_be_imported_is_a_warning(tmp_path, command):
    source = phone_layout(tmp_path / "raw")
    for path in (source / "validation/images").iterdir():
        path.write_bytes(b"")
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 1
    assert "\nwarning: no image of val could be imported\n" in output
    assert splits_of("folder", tmp_path / "data") == ["train"]


def test_a_source_without_training_images_is_a_warning(tmp_path, command):
    source = phone_layout(tmp_path / "raw")
    shutil.rmtree(source / "train")
    output = command("data", "import", source, tmp_path / "data")[1]
    assert "\nwarning: no image is for training\n" in output


@pytest.mark.parametrize("options", [(), ("--tolerance", 30)])
def test_labels_that_are_all_broken_are_faults(tmp_path, command, options):
    """Images for testing without labels are left: no pixel has a class."""
    source = mask_layout(tmp_path / "raw")
    for mask in source.rglob("masks/*"):
        mask.write_bytes(b"rubbish")
    save(source / "test/images/1.jpg", noise(8, 8))
    code, output, _ = command("data", "import", source, tmp_path / "data", *options)
    assert code == 1
    assert "warning: no image of train could be imported" in output


@pytest.mark.parametrize(("count", "word"), [(3, "note"), (16, "warning")])
def test_a_value_that_is_taken_for_void_is_said(tmp_path, command, count, word):
    """Labels of 0, 1 and 255, of which the last may well be a class."""
    label = np.repeat([0, 1], 32)
    label[:count] = 255
    for number in range(5):
        save(tmp_path / f"raw/images/{number}.png", noise(8, 8, seed=number))
        save(tmp_path / f"raw/masks/{number}.png", label.reshape(8, 8))
    code, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data")
    assert code == 0
    assert re.search(rf"\n{word}: 255 is taken for void \(\S+ % of the pixels\); if it is a class, name all", output)


@pytest.mark.parametrize(("rows", "word"), [(1, "note"), (3, "warning")])
def test_much_that_matches_no_class_is_a_warning(tmp_path, command, rows, word):
    for number in range(5):
        label = np.zeros((30, 30))
        label[:rows] = 9
        save(tmp_path / f"raw/images/{number}.png", noise(30, 30, seed=number))
        save(tmp_path / f"raw/masks/{number}.png", label)
    (tmp_path / "names.csv").write_text("0,ground\n1,thing\n")
    output = command("data", "import", tmp_path / "raw", tmp_path / "data", "--classes", tmp_path / "names.csv")[1]
    assert f"\n{word}: {5 * 30 * rows} pixels (" in output

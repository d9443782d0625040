"""A user's own data: every way to store it reads the same, and every mistake is one sentence with a name in it."""

import re
import zlib

import numpy as np
import pytest
import yaml
from PIL import Image

from losspool.segmentation.base.errors import BrokenFileError, UserError
from losspool.segmentation.data.files.labels import read_classes
from losspool.segmentation.data.kinds.registry import open_dataset, splits_of
from losspool.segmentation.data.protocol import read_pair
from small_data import CLASSES, VOID, label_values, noise, save, write_classes, write_folder

IDS = {0: 0, 2: 1, 7: 2, VOID: 255}


def decoded(values):
    return np.vectorize(IDS.get)(values)


def test_reads_what_was_written(tmp_path):
    dataset = open_dataset("folder", write_folder(tmp_path / "field"), "train")
    assert (dataset.name, len(dataset)) == ("field/train", 6)
    assert [info.name for info in dataset.classes] == ["soil", "weed", "crop plant"]
    for index, name in enumerate(dataset.names):
        np.testing.assert_array_equal(dataset.image(index), noise(40, 60, seed=int(name)))
        np.testing.assert_array_equal(dataset.label(index), decoded(label_values(40, 60, seed=int(name))))


def test_index_palette_colour_and_16_bit_labels_read_the_same(tmp_path):
    content = {"classes": CLASSES, "ignore": VOID, "ignore_color": [0, 0, 0]}
    write_classes(tmp_path, content)
    values = label_values(30, 20)
    colors = {entry["id"]: entry["color"] for entry in CLASSES} | {VOID: [0, 0, 0]}
    labels = tmp_path / "labels" / "train"
    save(labels / "index.png", values)
    palette = Image.fromarray(values).convert("P")
    palette.putdata(values.ravel().tolist())
    palette.putpalette([channel for value in range(256) for channel in colors.get(value, [1, 2, 3])])
    palette.save(labels / "palette.png")
    save(labels / "colour.png", np.array([[colors[value] for value in row] for row in values.tolist()]))
    Image.fromarray(values.astype(np.uint16)).save(labels / "wide.png")
    for name in ("index", "palette", "colour", "wide"):
        save(tmp_path / "images" / "train" / f"{name}.png", noise(30, 20))
    dataset = open_dataset("folder", tmp_path, "train")
    assert len(dataset) == 4
    for index in range(4):
        np.testing.assert_array_equal(dataset.label(index), decoded(values), err_msg=dataset.names[index])


def test_an_id_above_255(tmp_path):
    write_classes(tmp_path, {"classes": [{"name": "a", "id": 300, "color": [1, 1, 1]}], "ignore": 65535})
    save(tmp_path / "images/train/x.png", noise(2, 2))
    path = tmp_path / "labels/train/x.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(np.array([[300, 65535], [300, 300]], np.uint16)).save(path)
    assert open_dataset("folder", tmp_path, "train").label(0).tolist() == [[0, 255], [0, 0]]


@pytest.mark.parametrize("name", ["with blanks.png", "Straße/Übergang 雨.png", "a.b.c.png", "[x]*?.png"])
def test_file_names(tmp_path, name):
    write_classes(tmp_path)
    save(tmp_path / "images" / "train" / name, noise(4, 6))
    save(tmp_path / "labels" / "train" / name, label_values(4, 6))
    assert open_dataset("folder", tmp_path, "train").names == [name.removesuffix(".png")]


def test_image_and_label_may_differ_in_suffix(tmp_path):
    write_folder(tmp_path, count=1)
    (tmp_path / "images/train/000.png").rename(tmp_path / "images/train/000.tmp")
    save(tmp_path / "images/train/000.JPG", noise(40, 60))
    dataset = open_dataset("folder", tmp_path, "train")
    assert len(dataset) == 1
    read_pair(dataset, 0)


def test_a_list_file_is_a_split(tmp_path):
    write_folder(tmp_path, split="all ß")
    (tmp_path / "train.txt").write_text("all ß/002\nall ß/000.png\n\n", encoding="utf-8")
    (tmp_path / "val.txt").write_text("all ß/001\r\n", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no image is called like this")
    assert splits_of("folder", tmp_path) == ["all ß", "train", "val"]
    for split in ("train", "train.txt"):
        dataset = open_dataset("folder", tmp_path, split)
        assert dataset.names == ["all ß/000", "all ß/002"]
        read_pair(dataset, 1)
    assert len(open_dataset("folder", tmp_path, "val")) == 1


def test_a_list_says_which_suffix_it_means(tmp_path):
    write_folder(tmp_path, split="all", count=1)
    save(tmp_path / "images/all/000.Jpg", noise(40, 60, seed=9))
    (tmp_path / "train.txt").write_text("./all//000.Jpg\n")
    dataset = open_dataset("folder", tmp_path, "train")
    assert dataset.pairs[0].image.name == "000.Jpg"
    assert dataset.names == ["all/000"]


def test_a_split_that_is_a_folder_and_a_list_is_refused(tmp_path):
    write_folder(tmp_path, split="train")
    (tmp_path / "train.txt").write_text("train/000\n")
    with pytest.raises(UserError, match=r"train\.txt: the split 'train' is also a folder below .*images"):
        open_dataset("folder", tmp_path, "train")


def test_hidden_files_are_left_out_and_links_followed(tmp_path):
    write_folder(tmp_path, count=2)
    save(tmp_path / "images/train/.checkpoints/000.png", noise(4, 4))
    save(tmp_path / "images/train/.hidden.png", noise(4, 4))
    save(tmp_path / "elsewhere/images/a.png", noise(40, 60))
    save(tmp_path / "elsewhere/labels/a.png", label_values(40, 60))
    for kind in ("images", "labels"):
        (tmp_path / kind / "train" / "city").symlink_to(tmp_path / "elsewhere" / kind)
    (tmp_path / "images/train/loop").symlink_to(tmp_path / "images")
    dataset = open_dataset("folder", tmp_path, "train")
    assert dataset.names == ["000", "001", "city/a"]
    read_pair(dataset, 2)


BAD_LISTS = {
    "./all/000\nall//000\n": "'all/000' is listed twice",
    "all/000\nall/000.png\n": "'all/000' is listed twice",
    "a\0b\n": "points outside the folder",
    "all/000\nall/000\n": "'all/000' is listed twice",
    "../../etc/passwd\n": "'../../etc/passwd' points outside the folder",
    "/etc/passwd\n": "'/etc/passwd' points outside the folder",
    "all/777\n": "there is no image 'all/777' below",
    "\n \n": "the split 'train' of folder holds no images",
}


@pytest.mark.parametrize("text", BAD_LISTS)
def test_bad_lists(tmp_path, text):
    write_folder(tmp_path, split="all")
    (tmp_path / "train.txt").write_text(text)
    with pytest.raises(UserError, match=re.escape(BAD_LISTS[text])):
        open_dataset("folder", tmp_path, "train")


def entry(**changes):
    return {"classes": [CLASSES[0], {**CLASSES[1], **changes}], "ignore": VOID}


BAD_CLASSES = [
    (entry(color=[90, 60, 30]), "classes[1].color [90, 60, 30] already belongs to 'soil'"),
    (entry(id=0), "classes[1].id 0 already belongs to 'soil'"),
    (entry(name="soil"), "classes[1].name 'soil' is already the name of classes[0]"),
    (entry(id=255), "ignore 255 already belongs to 'weed'"),
    (entry(id="2"), "classes[1].id must be a whole number from 0 to 65535, got '2'"),
    (entry(id=True), "classes[1].id must be a whole number from 0 to 65535, got True"),
    (entry(id=-1), "got -1"),
    (entry(name=""), "classes[1].name must be a non-empty string, got ''"),
    (entry(color=[0, 0, 256]), "classes[1].color must be a whole number from 0 to 255, got 256"),
    (entry(color="red"), "classes[1].color must be three numbers [red, green, blue], got 'red'"),
    (entry(colour=[0, 0, 0]), "classes[1] has the unknown field 'colour'; choose from color, id, name"),
    ({"classes": []}, "'classes' must be a list of at least one class, got []"),
    ({"classes": [3]}, "classes[0] must be a name, or hold name, id and color, got 3"),
    ({"classes": ["weed", "weed"]}, "classes[1].name 'weed' is already the name of classes[0]"),
    ({"classes": ["soil", {"name": "weed", "id": 0}]}, "classes[1].id 0 already belongs to 'soil'"),
    (
        {"classes": CLASSES, "intensity": [5, 5]},
        "intensity must be two numbers [low, high], the lower first, got [5, 5]",
    ),
    ({"clases": CLASSES}, "the file has the unknown field 'clases'"),
    (["weed"], "the file must contain 'classes' and 'ignore', got ['weed']"),
]


@pytest.mark.parametrize(("content", "message"), BAD_CLASSES, ids=lambda value: value if isinstance(value, str) else "")
def test_bad_classes(tmp_path, content, message):
    path = write_classes(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read_classes(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["classes: [", "!!python/object/apply:os.system ['touch pwned']", "a: &a [*a", "\x00", "- " * 5000]
)
def test_yaml_that_is_none(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "classes.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        read_classes(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()


def test_missing_things_are_named(tmp_path):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'no'}: the root of the data does not exist")):
        open_dataset("folder", tmp_path / "no", "train")
    with pytest.raises(
        UserError, match=re.escape(f"{tmp_path / 'classes.yaml'}: the file that names the classes does")
    ):
        open_dataset("folder", tmp_path, "train")
    write_classes(tmp_path)
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'images' / 'train'}: no such folder")):
        open_dataset("folder", tmp_path, "train")
    (tmp_path / "images" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match="the split 'train' of folder holds no images"):
        open_dataset("folder", tmp_path, "train")
    with pytest.raises(UserError, match="unknown dataset 'citiscapes'; did you mean 'cityscapes'"):
        open_dataset("citiscapes", tmp_path, "train")
    with pytest.raises(UserError, match="unknown dataset 'x'; choose from camvid, cityscapes, folder, voc, streets"):
        open_dataset("x", tmp_path, "train")
    with pytest.raises(UserError, match="the dataset 'folder' needs a root folder"):
        open_dataset("folder", None, "train")


def broken(root, kind):
    """Damage the first pair; what the message must say."""
    image, label = root / "images/train/000.png", root / "labels/train/000.png"
    if kind == "truncated image":
        image.write_bytes(image.read_bytes()[:-900])
        return image, "the image cannot be decoded"
    if kind == "truncated label":
        label.write_bytes(label.read_bytes()[:60])
        return label, "the image cannot be decoded"
    if kind == "no image":
        image.write_text("rubbish")
        return image, "not an image that Pillow can read"
    if kind == "missing label":
        label.unlink()
        return image, "this image has no label"
    if kind == "other size":
        save(label, label_values(40, 61))
        return image, f"the image is 60×40, its label 61×40 ({label})"
    if kind == "unknown value":
        save(label, np.full((40, 60), 9))
        return label, "the label value 9 is neither a class id nor void"
    save(label, np.full((40, 60, 3), 9))
    return label, "the colour (9, 9, 9) is neither a class colour nor void"


KINDS = ("truncated image", "truncated label", "no image", "missing label", "other size", "unknown value", "colour")


@pytest.mark.parametrize("kind", KINDS)
def test_bad_files_are_named(tmp_path, kind):
    root = write_folder(tmp_path)
    name, problem = broken(root, kind)
    dataset = open_dataset("folder", root, "train")
    with pytest.raises(BrokenFileError) as caught:
        read_pair(dataset, 0)
    assert str(name) in str(caught.value)
    assert problem in str(caught.value)
    read_pair(dataset, 1)


def converted(mode):
    """The same picture, stored otherwise."""
    return Image.fromarray(noise(40, 60)).convert(mode)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_images_of_every_kind_become_rgb(tmp_path, mode):
    write_folder(tmp_path, count=1)
    suffix = "tif" if mode == "CMYK" else "png"
    (tmp_path / "images/train/000.png").unlink()
    converted(mode).save(tmp_path / f"images/train/000.{suffix}")
    image = open_dataset("folder", tmp_path, "train").image(0)
    assert image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(image), np.asarray(converted(mode).convert("RGB")))


def test_names_are_enough(tmp_path):
    path = write_classes(
        tmp_path, {"classes": ["soil", "crop", {"name": "weed", "color": [128, 0, 0]}, {"name": "x", "id": 9}]}
    )
    found = read_classes(path)
    assert [info.name for info in found.infos] == ["soil", "crop", "weed", "x"]
    assert found.decoder.values == {0: 0, 1: 1, 2: 2, 9: 3}
    colors = [info.color for info in found.infos]
    assert len(set(colors)) == 4
    assert colors[2] == (128, 0, 0)
    assert min(map(sum, colors)) > 0  # black would not be seen in an overlay


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_labels_of_few_bits_are_read_as_they_are(tmp_path, bits):
    """Pillow stretches them to 0 … 255; void, the largest value of the file, must not become another class."""
    values = np.arange(8, dtype=np.uint8).reshape(2, 4) % (1 << bits)
    classes = [{"name": f"c{value}", "id": value, "color": [value, 0, 0]} for value in range((1 << bits) - 1)]
    write_classes(tmp_path, {"classes": classes, "ignore": (1 << bits) - 1})
    save(tmp_path / "images/train/a.png", noise(2, 4))
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/train/a.png").write_bytes(grey_png(values, bits))
    label = open_dataset("folder", tmp_path, "train").label(0)
    np.testing.assert_array_equal(label, np.where(values == (1 << bits) - 1, 255, values))


def grey_png(values, bits):
    """Written by hand: Pillow writes grey levels of 1 or 8 bits alone."""

    def chunk(kind, content):
        body = kind + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    height, width = values.shape
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([bits, 0, 0, 0, 0])
    spread = (values[..., None] >> np.arange(bits - 1, -1, -1)) & 1
    rows = b"".join(b"\0" + np.packbits(row.ravel()).tobytes() for row in spread)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_options_of_other_datasets_are_refused(tmp_path):
    with pytest.raises(TypeError, match="folder takes no options, got count"):
        open_dataset("folder", tmp_path, "train", count=3)


def test_names_that_differ_in_their_suffix_alone(tmp_path):
    write_folder(tmp_path, count=1)
    save(tmp_path / "images/train/000.jpg", noise(40, 60))
    with pytest.raises(UserError, match=r"000\.png: differs from 000\.jpg only in its suffix"):
        open_dataset("folder", tmp_path, "train")


def test_an_image_of_huge_size_is_refused(tmp_path):
    write_folder(tmp_path, count=1)
    path = tmp_path / "images/train/000.png"
    head = bytearray(path.read_bytes())
    head[16:24] = (50_000).to_bytes(4, "big") * 2  # width and height in the PNG's header
    head[29:33] = zlib.crc32(bytes(head[12:29])).to_bytes(4, "big")
    path.write_bytes(head)
    with pytest.raises(BrokenFileError, match="refused because of its size"):
        open_dataset("folder", tmp_path, "train").image(0)


def test_the_form_that_the_documentation_shows(tmp_path):
    text = "classes: [{name: weed, id: 2, color: [255, 0, 0]}, {name: soil, id: 0, color: [90, 60, 30]}]\nignore: 255\n"
    assert yaml.safe_load(text)["ignore"] == 255
    (tmp_path / "classes.yaml").write_text(text)
    assert [info.name for info in read_classes(tmp_path / "classes.yaml").infos] == ["weed", "soil"]

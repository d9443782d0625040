"""The classes of a source: lists of them, and what is inferred from labels."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.base import UserError
from losspool.segmentation.data.files.labels import read_classes
from losspool.segmentation.data.importing.class_lists import ClassList, SourceClass, infer_classes, read_class_list
from small_data import noise, save


@pytest.mark.parametrize("low", [1e-5, -0.25, 0.0])
@pytest.mark.parametrize("high", [1e6, 1234567.0, 2e-5, 3.0])
def test_a_range_is_read_as_it_was_written(tmp_path, low, high):
    path = tmp_path / "classes.yaml"
    path.write_text(ClassList((SourceClass("thing", 0),), intensity=(low, high)).to_yaml())
    assert read_classes(path).intensity == (low, high)


CLASS_LISTS = {
    "a.csv": "id,name,r,g,b\n0,soil,0,0,0\n7,crop plant,0,128,0\n3,Void,9,9,9\n",
    "b.csv": "name;r;g;b;id\nsoil;0;0;0;0\ncrop plant;0;128;0;7\nvoid;9;9;9;3\n",
    "c.csv": "0\tsoil\t0\t0\t0\n7\tcrop plant\t0\t128\t0\n3\tvoid\t9\t9\t9\n",
    "d.txt": "0 soil 0 0 0\n7 crop plant 0 128 0\n3 void 9 9 9\n",
    "e.txt": "# ours\n0 soil\n7 crop plant\n3 void\n",
    "f.txt": "soil\ncrop plant\nvoid\n",
    "g.csv": "name;r;g;b\nsoil;0;0;0\ncrop plant;0;128;0\nvoid;9;9;9\n",
}


@pytest.mark.parametrize("name", CLASS_LISTS)
def test_lists_of_classes_with_ids_colours_or_names_alone(tmp_path, name):
    (tmp_path / name).write_text(CLASS_LISTS[name])
    found = read_class_list(tmp_path / name)
    numbered, colored = name[0] in "abcde", name[0] in "abcdg"
    assert [(each.name, each.id) for each in found.classes] == [("soil", 0), ("crop plant", 7 if numbered else 1)]
    assert [each.color for each in found.classes] == ([(0, 0, 0), (0, 128, 0)] if colored else [None, None])
    assert found.void_ids == ((3,) if numbered else (2,))
    assert found.void_colors == (((9, 9, 9),) if colored else ())
    assert found.by_color == (colored and not numbered)


@pytest.mark.parametrize("line", ["1 2 a", "300 soil 300 0 0", "70000 soil", "1 2 3 4"])
def test_a_line_of_a_class_list_that_means_nothing(tmp_path, line):
    (tmp_path / "classes.txt").write_text(f"0 a\n{line}\n")
    with pytest.raises(UserError, match=r"classes\.txt: line 2 must name a class, with three colours from 0 to 255 or"):
        read_class_list(tmp_path / "classes.txt")


def blurred_masks(root, colours, jpeg):
    """Masks of a circle, compressed or antialiased."""
    rows, columns = np.mgrid[:64, :80]
    for number in range(6):
        inside = (rows - 30) ** 2 + (columns - 20 - 5 * number) ** 2 < (8 + number) ** 2
        values = np.array(colours, np.uint8)[inside.astype(int)]
        if jpeg:
            save(root / f"masks/{number}.jpg", values, quality=80)
        else:
            picture = Image.fromarray(values).resize((160, 128), Image.Resampling.BILINEAR)
            save(root / f"masks/{number}.png", picture.resize((80, 64), Image.Resampling.BILINEAR))
        save(root / f"images/{number}.png", noise(64, 80, seed=number))
    return root


def test_names_alone_take_the_values_of_the_labels(tmp_path, command):
    """Two names for masks of 0 and 255: without this, the foreground would become void."""
    for number in range(4):
        mask = np.zeros((20, 30), np.uint8)
        mask[:, 12 + number :] = 255
        save(tmp_path / f"raw/masks/{number}.png", mask)
        save(tmp_path / f"raw/images/{number}.png", noise(20, 30, seed=number))
    (tmp_path / "names.txt").write_text("soil\nplant\n")
    code, output, _ = command(
        "data", "import", tmp_path / "raw", tmp_path / "data", "--classes", tmp_path / "names.txt"
    )
    assert code == 0
    assert "void" not in output
    found = read_classes(tmp_path / "data/classes.yaml")
    assert found.decoder.values[0] == 0
    assert found.decoder.values[255] == 1


def test_small_blurred_objects_keep_their_class(tmp_path, command):
    """The values at their edges are more frequent than the value inside, which may not occur twice."""
    rows, columns = np.mgrid[:64, :80]
    for number in range(6):
        distance = np.hypot(rows - 30, columns - 20 - 5 * number)
        save(tmp_path / f"raw/masks/{number}.png", (255 * np.exp(-(distance**2) / 20)).round().astype(np.uint8))
        save(tmp_path / f"raw/images/{number}.png", noise(64, 80, seed=number))
    code, _, error = command("data", "import", tmp_path / "raw", tmp_path / "data")
    assert code == 2
    assert "of the pixels are within 128 of 0, 255: pass --tolerance 128 for" in error
    code, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data", "--tolerance", 128)
    assert code == 0
    assert "classes: background, foreground" in output
    assert "matched no class" not in output


@pytest.mark.parametrize(
    ("colours", "jpeg", "tolerance"),
    [((0, 255), True, 128), ((0, 255), False, 128), (((0, 0, 0), (120, 0, 120)), False, 85)],
)
def test_blurred_masks_are_refused_with_the_tolerance_that_mends_them(tmp_path, command, colours, jpeg, tolerance):
    source = blurred_masks(tmp_path / "raw", colours, jpeg)
    code, _, error = command("data", "import", source, tmp_path / "data")
    assert code == 2
    assert "different values, which look like compression or antialiasing; " in error
    assert f"pass --tolerance {tolerance} for" in error
    code, output, _ = command("data", "import", source, tmp_path / "data", "--tolerance", tolerance)
    assert code == 0
    assert "classes: background, foreground" in output
    assert "matched no class" not in output


def test_a_rare_colour_that_compression_blurs_keeps_its_class(tmp_path, command):
    """No single value of it is frequent; those near each other are together. The advice covers it as well."""
    for number in range(8):
        label = np.zeros((64, 80, 3), np.uint8)
        label[8:24, 8 : 24 + 4 * number] = (200, 0, 0)
        label[32:56, 16 : 24 + 3 * number] = (0, 0, 200)
        save(tmp_path / f"raw/images/{number}.png", noise(64, 80, seed=number))
        save(tmp_path / f"raw/masks/{number}.jpg", label, quality=70)
    code, _, error = command("data", "import", tmp_path / "raw", tmp_path / "data")
    assert code == 2
    tolerance = re.search(r"pass --tolerance (\d+) for", error)[1]
    code, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data", "--tolerance", tolerance)
    assert code == 0
    assert "classes: class 0, class 1, class 2 (from" in output
    colors = [info.color for info in read_classes(tmp_path / "data/classes.yaml").infos]
    colors.sort(key=lambda color: color[2] - color[0])
    assert np.abs(np.array(colors) - [(200, 0, 0), (0, 0, 0), (0, 0, 200)]).max() < 16


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "L"])
def test_grey_masks_stored_as_colours_or_with_opacity_keep_their_values(tmp_path, command, mode):
    """The background is black, so that overlays leave an image as it is there."""
    (tmp_path / "raw/masks").mkdir(parents=True)
    for number in range(3):
        label = Image.fromarray(np.repeat([0, 255], 32).astype(np.uint8).reshape(8, 8))
        label.convert(mode).save(tmp_path / f"raw/masks/{number}.png")
        save(tmp_path / f"raw/images/{number}.png", noise(8, 8, seed=number))
    assert command("data", "import", tmp_path / "raw", tmp_path / "data")[0] == 0
    found = read_classes(tmp_path / "data/classes.yaml")
    assert (found.decoder.values[0], found.decoder.values[255]) == (0, 1)
    assert found.infos[0].color == (0, 0, 0)


@pytest.mark.parametrize(
    "values", [range(20), [*range(20), 255], [0, 7, 8, 11, 12, 13, 17, 19, 20, 21, 33], range(0, 70, 10)]
)
def test_rare_classes_are_not_taken_for_noise(values):
    counts = Counter(dict.fromkeys(values, 1)) + Counter({0: 100_000})
    assert len(infer_classes(counts, 0.0, Path("raw")).classes) == len([value for value in values if value != 255])


def test_rare_colours_of_a_palette_are_not_taken_for_noise():
    """CamVid's kind of palette: multiples of 64."""
    colors = [(64 * red, 64 * green, 64 * blue) for red in range(3) for green in range(3) for blue in range(3)]
    counts = Counter(dict.fromkeys(colors, 1)) + Counter(dict.fromkeys(colors[:3], 100_000))
    assert len(infer_classes(counts, 0.0, Path("raw")).classes) == 27

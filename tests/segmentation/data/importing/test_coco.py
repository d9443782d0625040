"""COCO's annotations become labels: polygons by the centres of pixels, run lengths to the pixel."""

import json

import numpy as np
import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.data import open_dataset
from losspool.segmentation.data.files.labels import read_classes
from losspool.segmentation.data.importing.coco import CocoImage, find_coco, rasterised
from raw_downloads import coco_layout, run_lengths, scene
from small_data import save


def compressed(runs):
    """As in COCO's own maskApi.c, rleToString."""
    text = ""
    for place, run in enumerate(runs):
        value = run - runs[place - 2] if place > 2 else run
        more = True
        while more:
            bits = value & 31
            value >>= 5
            more = value != -1 if bits & 16 else value != 0
            text += chr((bits | 32 if more else bits) + 48)
    return text


def image_of(tmp_path, height, width, *objects):
    return CocoImage(tmp_path / "a.png", height, width, None, objects, tmp_path / "a.json")


def test_objects_are_where_they_were_drawn(tmp_path):
    found = find_coco(coco_layout(tmp_path))
    assert found.classes == (("background", 0), ("bar", 3), ("thing", 7))
    assert len(found.images) == 15
    for image in found.images:
        classes = scene(int(image.path.stem))[1]
        np.testing.assert_array_equal(rasterised(image), np.array([0, 7, 3])[classes])


@pytest.mark.parametrize("seed", range(5))
def test_run_lengths_are_exact_compressed_or_not(tmp_path, seed):
    random = np.random.default_rng(seed)
    mask = np.kron(random.random((5, 7)) < 0.5, np.ones((random.integers(1, 40), 3))) > 0
    for counts in (run_lengths(mask), compressed(run_lengths(mask))):
        image = image_of(tmp_path, *mask.shape, (5, {"counts": counts, "size": list(mask.shape)}))
        np.testing.assert_array_equal(rasterised(image), 5 * mask)


def test_a_polygon_holds_the_pixels_whose_centres_it_holds(tmp_path):
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    x, y = 20 + 12 * np.cos(angles), 15 + 12 * np.sin(angles)
    label = rasterised(image_of(tmp_path, 30, 40, (1, [np.stack([x, y], 1).ravel().tolist()])))
    rows, columns = np.ogrid[0.5:30, 0.5:40]
    distance = np.hypot(columns - 20, rows - 15)
    assert label[distance < 11.9].all()
    assert not label[distance > 12].any()
    outside = rasterised(image_of(tmp_path, 10, 10, (1, [[-5, -5, 25, -5, 25, 4, -5, 4]])))
    assert outside[:4].all()
    assert not outside[4:].any()


def write(path, **changes):
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 4, "width": 4}],
        "annotations": [{"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 2]]}],
        "categories": [{"id": 1, "name": "x"}],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content | changes))
    return path.parent


MISTAKES = {
    "an annotation names category 9, which is not in 'categories'": {
        "annotations": [{"image_id": 1, "category_id": 9, "segmentation": []}]
    },
    "an entry of 'images' must have a whole number under 'height', got {'file_name': 'a.png', 'id': 1}": {
        "images": [{"id": 1, "file_name": "a.png"}]
    },
    "none of 3 annotations has a segmentation; boxes alone say nothing about pixels": {
        "annotations": [
            {"image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], **segmentation}
            for segmentation in ({}, {"segmentation": []}, {"segmentation": None})
        ]
    },
    "two categories have the name 'x'": {"categories": [{"id": 1, "name": "x"}, {"id": 2, "name": "x"}]},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_one_sentence(tmp_path, message):
    with pytest.raises(UserError) as caught:
        find_coco(write(tmp_path / "a.json", **MISTAKES[message]))
    assert str(caught.value) == f"{tmp_path / 'a.json'}: {message}"


@pytest.mark.parametrize("segmentation", [5, "x", [[1, 2, 3]], {"counts": [3]}, {"counts": "?~"}, {}])
def test_a_bad_segmentation_names_the_file(tmp_path, segmentation):
    annotation = {"image_id": 1, "category_id": 1, "segmentation": segmentation}
    found = find_coco(write(tmp_path / "a.json", annotations=[annotation]))
    with pytest.raises(UserError, match=r"a\.json: the segmentation of an object of a\.png is neither polygons nor"):
        rasterised(found.images[0])


def test_objects_without_a_shape_are_counted(tmp_path, command):
    shape = {"image_id": 1, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 2, 0, 2]]}
    boxes = [{"image_id": 1, "category_id": 1, "bbox": [0, 2, 2, 2], "segmentation": []}] * 2
    source = write(tmp_path / "raw/a.json", annotations=[shape, *boxes])
    save(source / "a.png", np.zeros((4, 4, 3)))
    code, output, _ = command("data", "import", source, tmp_path / "data", "--val", "0")
    assert code == 0
    assert "warning: 2 objects have no segmentation and became background" in output
    assert open_dataset("folder", tmp_path / "data", "train").label(0).tolist() == [[1] * 4] * 2 + [[0] * 4] * 2


def test_equal_names_in_several_folders(tmp_path, command):
    entry = {"height": 4, "width": 4}
    images = [{"id": place, "file_name": f"p{place}/a.png", **entry} for place in range(2)]
    shapes = [{"image_id": 0, "category_id": 1, "segmentation": [[0, 0, 4, 0, 4, 2, 0, 2]]}]
    source = write(tmp_path / "raw/a.json", images=images, annotations=shapes)
    for place in range(2):
        save(source / f"images/p{place}/a.png", np.zeros((4, 4, 3)))
    assert command("data", "import", source, tmp_path / "data", "--val", "0")[0] == 0
    dataset = open_dataset("folder", tmp_path / "data", "train")
    assert dataset.names == ["p0/a", "p1/a"]
    assert [int(dataset.label(index).sum()) for index in range(2)] == [8, 0]


def test_other_json_files_are_not_cocos(tmp_path):
    (tmp_path / "notes.json").write_text('{"images": 3}')
    (tmp_path / "broken.json").write_text("{")
    assert find_coco(tmp_path) is None


def test_a_missing_image_is_one_of_the_annotations(tmp_path, command):
    source = coco_layout(tmp_path / "raw")
    (source / "images/3.png").unlink()
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 1
    problem = "there is no image '3.png', neither beside it nor elsewhere in the source"
    assert f"fault: {source / 'annotations.json'}: {problem}" in output
    # It belongs to no group, and so does not end an import by groups.
    code, output, _ = command("data", "import", source, tmp_path / "grouped", "--group", r"[0-24-9]")
    assert code == 1
    assert problem in output


def test_keypoints_and_captions_beside_instances_are_left_out(tmp_path, command):
    """As COCO's own download has them: three files of the same images."""
    source = coco_layout(tmp_path / "raw")
    text = (source / "annotations.json").read_text()
    (source / "annotations.json").rename(source / "instances_train2017.json")
    (source / "person_keypoints_train2017.json").write_text(text)
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 0
    assert "layout: COCO annotations: instances_train2017.json\n" in output
    (source / "instances_train2017.json").rename(source / "a_train.json")
    code, _, error = command("data", "import", source, tmp_path / "again")
    assert code == 2
    both = f"both {source / 'a_train.json'} and {source / 'person_keypoints_train2017.json'} list it; keep one of them"
    assert f"0.png: {both}" in error


def test_groups_and_range_of_the_source_are_kept(tmp_path, command):
    source = coco_layout(tmp_path / "raw")
    (source / "classes.yaml").write_text("classes: [background, thing, bar]\ngroups: '\\d'\nintensity: [3, 900]\n")
    assert command("data", "import", source, tmp_path / "data")[0] == 0
    found = read_classes(tmp_path / "data/classes.yaml")
    assert (found.groups.value, found.intensity) == (r"\d", (3, 900))
    assert [info.name for info in found.infos] == ["background", "bar", "thing"]


@pytest.mark.parametrize("option", ["--classes", "--images"])
def test_options_that_annotations_decide_are_refused(tmp_path, command, option):
    source = coco_layout(tmp_path / "raw")
    code, _, error = command("data", "import", source, tmp_path / "data", option, "images")
    assert code == 2
    assert f"leave {option} out, because annotations.json names the classes and the images" in error

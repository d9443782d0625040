"""Which images of a dataset belong together, and what an evaluation stores of it."""

import json

import pytest

from cityscapes_data import write_cityscapes
from losspool.segmentation.base import UserError
from losspool.segmentation.data import is_custom, is_video, open_dataset
from losspool.segmentation.data.files.groups import parse_groups
from losspool.segmentation.data.kinds.folder import open_folder
from small_data import CLASSES, VOID, save, write_classes
from trained_runs import small_config, write_run


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (None, None),
        ("video", None),
        (r"(\w+)_\d+", ["ann", "ann", "bob", "x"]),
        (r"^\w", ["a", "a", "b", "x"]),
        (r"ann|(bob)", ["ann_1", "ann_2", "bob", "x"]),
        ({"one": ["ann_*"], "two": ["bob_1", "x"]}, ["one", "one", "two", "two"]),
        ({"one": ["ann_1"]}, ["one", "ann_2", "bob_1", "x"]),
    ],
)
def test_groups_of_names(tmp_path, groups, found):
    parsed = parse_groups(tmp_path, groups)
    assert parsed.of(["ann_1", "ann_2", "bob_1", "x"]) == found
    assert parsed.video == (groups == "video")


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("(", r"'groups' is not a regular expression"),
        (7, r"'groups' must be video, a regular expression .*, got 7"),
        ({}, r"'groups' must be video"),
        ({"a": "b"}, r"groups\['a'\] must be a list of image names, got 'b'"),
        ({1: ["b"]}, r"groups\[1\] must be a list of image names"),
    ],
)
def test_mistakes_name_the_file(tmp_path, groups, words):
    path = write_classes(tmp_path, {"classes": CLASSES, "ignore": VOID, "groups": groups})
    with pytest.raises(UserError, match=words) as caught:
        open_folder(tmp_path, "train")
    assert str(caught.value).startswith(f"{path}: ")


def test_an_evaluation_stores_them(tmp_path, command):
    config = small_config(tmp_path / "data")
    run = write_run(tmp_path / "run", config)
    path = run.path / "evaluation-val-none-5.json"
    for groups, stored in ((None, [None] * 3), (r"^..(\d)", ["0", "1", "2"]), ({"a": ["00[01]"]}, ["a", "a", "002"])):
        write_classes(tmp_path / "data", {"classes": CLASSES, "ignore": VOID, **({"groups": groups} if groups else {})})
        assert command("evaluate", run.path, "--trust", "tiny_model.build")[0] == 0
        content = json.loads(path.read_text())
        assert [line.get("group") for line in content["checkpoints"][0]["per_image"]] == stored
        assert content["video"] is False


def test_kinds_and_their_datasets_agree_on_what_is_video(tmp_path):
    save(tmp_path / "images/val/0016E5_07959.png", [[0]])
    save(tmp_path / "labels/val/0016E5_07959.png", [[0]])
    write_classes(tmp_path)
    write_cityscapes(tmp_path, count=1)
    for name, video in (("camvid", True), ("cityscapes", True), ("folder", False)):
        assert open_dataset(name, tmp_path, "val").groups.video == is_video(name) == video
    assert not is_video("missing.package")  # asked without importing it
    assert not is_custom("missing.package")

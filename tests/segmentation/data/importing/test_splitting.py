"""How ``losspool data import`` divides a source: shares, lists, groups, and splits of its own."""

import numpy as np
import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.data import open_dataset
from losspool.segmentation.data.files.groups import parse_groups
from losspool.segmentation.data.files.labels import read_classes
from losspool.segmentation.data.importing.splitting import Splitting, divide
from raw_downloads import mask_layout
from small_data import noise, save

NAMES = {f"field{group}_{number}": None for group in range(6) for number in range(5)}


def counts(splits):
    return {split: list(splits.values()).count(split) for split in sorted(set(splits.values()))}


def test_a_split_by_share_depends_on_the_names_alone(tmp_path):
    found = divide(NAMES, Splitting(0.2, 0.1), tmp_path)
    assert counts(found) == {"test": 3, "train": 21, "val": 6}
    assert divide(dict(reversed(NAMES.items())), Splitting(0.2, 0.1), tmp_path) == found
    assert counts(divide(NAMES, Splitting(0.0), tmp_path)) == {"train": 30}


def test_groups_stay_together(tmp_path):
    found = divide(NAMES, Splitting(0.2, group=r"(\w+)_\d+"), tmp_path)
    assert counts(found) == {"train": 25, "val": 5}
    for group in range(6):
        assert len({split for name, split in found.items() if name.startswith(f"field{group}_")}) == 1


GROUPS = {
    "pattern": (r"groups: '(\w+)_\d+'", ()),
    "list": ("groups: {a: ['field0_*', 'field1_*'], b: ['field2_*', 'field3_*']}", ()),
    "option": ("groups: video", ("--group", r"(\w+)_\d+")),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_groups_and_range_of_the_source_are_kept(tmp_path, command, kind):
    """They also stay together in the splits, and an option has precedence."""
    text, options = GROUPS[kind]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/classes.yaml").write_text(f"classes: [soil, weed]\nintensity: [1.0e-5, 2.5]\n{text}\n")
    for number in range(12):
        save(tmp_path / f"raw/images/field{number // 3}_{number}.png", noise(4, 5, seed=number))
        save(tmp_path / f"raw/masks/field{number // 3}_{number}.png", np.zeros((4, 5)))
    assert command("data", "import", tmp_path / "raw", tmp_path / "data", *options)[0] == 0
    found = read_classes(tmp_path / "data/classes.yaml")
    assert found.intensity == (1e-5, 2.5)
    expected = parse_groups(tmp_path, options[-1]) if options else read_classes(tmp_path / "raw/classes.yaml").groups
    assert found.groups == expected
    train, val = (set(found.groups.of(open_dataset("folder", tmp_path / "data", s).names)) for s in ("train", "val"))
    assert not train & val


def test_groups_are_of_names_without_the_split(tmp_path):
    """So one that begins with a split does not join all its images."""
    names = {f"train/{patient}_{n}": "train" for patient in "abc" for n in range(3)}
    found = divide(names, Splitting(0.3, group=r"^(\w+)_\d+"), tmp_path)
    assert counts(found) == {"train": 6, "val": 3}
    assert len({name[:7] for name, split in found.items() if split == "val"}) == 1


def test_a_split_by_lists(tmp_path, command):
    source = mask_layout(tmp_path / "raw")
    (source / "train.txt").write_text("\n".join(map(str, range(5))))
    (source / "val.txt").write_text("images/7.jpg\nimages/8.jpg\n")
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 0
    assert "note: 8 images are in no list: left out" in output
    assert open_dataset("folder", tmp_path / "data", "val").names == ["7", "8"]
    assert len(open_dataset("folder", tmp_path / "data", "train")) == 5


def test_what_the_lists_leave_is_for_training_if_none_is_for_it(tmp_path):
    lists = tmp_path / "val.txt", tmp_path / "test.txt"
    for path, names in zip(lists, (list(NAMES)[:4], list(NAMES)[4:10]), strict=True):
        path.write_text("\n".join(names))
    assert counts(divide(NAMES, Splitting(lists=lists[:1]), tmp_path)) == {"train": 26, "val": 4}
    assert counts(divide(NAMES, Splitting(lists=lists), tmp_path)) == {"test": 6, "train": 20, "val": 4}
    assert counts(divide(NAMES, Splitting(0.25, lists=lists[1:]), tmp_path)) == {"test": 6, "train": 18, "val": 6}


def test_lists_without_a_validation_split_give_one_up_to_it(tmp_path):
    """The options that divide are obeyed, or refused: never ignored."""
    (tmp_path / "train.txt").write_text("\n".join(list(NAMES)[:20]))
    (tmp_path / "test.txt").write_text("\n".join(list(NAMES)[20:]))
    found = divide(NAMES, Splitting(0.25, group=r"(\w+)_\d+"), tmp_path)
    assert counts(found) == {"test": 10, "train": 15, "val": 5}
    assert len({name[:6] for name, split in found.items() if split == "val"}) == 1
    (tmp_path / "val.txt").write_text("\n".join(list(NAMES)[20:22]))
    (tmp_path / "test.txt").unlink()
    assert counts(divide(NAMES, Splitting(), tmp_path)) == {"train": 20, "val": 2}
    with pytest.raises(UserError, match="has a validation split already; leave --val out"):
        divide(NAMES, Splitting(0.3), tmp_path)


def test_a_list_for_testing_may_name_images_without_labels(tmp_path, command):
    source = mask_layout(tmp_path / "raw")
    for number in (3, 4, 5):
        (source / f"masks/{number}.png").unlink()
    (source / "train.txt").write_text("0\n1\n2\n")
    (source / "val.txt").write_text("6\n7\n")
    (source / "test.txt").write_text("3\n4\n")
    code, output, _ = command("data", "import", source, tmp_path / "data")
    assert code == 0
    assert open_dataset("folder", tmp_path / "data", "test").names == ["3", "4"]
    assert "note: 1 image has no label: left out" in output
    (source / "val.txt").write_text("5\n")
    code, _, error = command("data", "import", source, tmp_path / "again")
    assert code == 2
    assert "val.txt: there is no labelled image '5'" in error


def test_own_splits_stay_and_val_is_taken_from_train(tmp_path):
    names = {f"train/{n}": "train" for n in range(10)} | {f"test/{n}": "test" for n in range(4)}
    assert counts(divide(names, Splitting(), tmp_path)) == {"test": 4, "train": 8, "val": 2}
    with pytest.raises(UserError, match="has a validation split already; leave --val out"):
        divide({**names, "val/1": "val"}, Splitting(0.3), tmp_path)
    with pytest.raises(UserError, match="has a test split already; leave --test out"):
        divide(names, Splitting(test=0.3), tmp_path)


def test_images_that_no_list_names_keep_the_split_of_the_source(tmp_path):
    """A list replaces a split; the images that it leaves are for training only if the source has no split for them."""
    names = {f"train/{n}": "train" for n in range(10)} | {f"test/{n}": "test" for n in range(12, 16)}
    (tmp_path / "val.txt").write_text("train/0\ntrain/1\n")
    lists = (tmp_path / "val.txt",)
    found = divide(names, Splitting(lists=lists), tmp_path)
    assert counts(found) == {"test": 4, "train": 8, "val": 2}
    assert {name for name, split in found.items() if split == "test"} == {name for name in names if "test" in name}
    replaced = divide({**names, "val/9": "val"}, Splitting(lists=lists), tmp_path)
    assert replaced == found  # the old validation image is in no split


@pytest.mark.parametrize("apart", [False, True])
def test_groups_that_the_source_divides_are_a_warning(tmp_path, command, apart):
    """``--group`` cannot keep them together where the source has splits; the check of the data says so as well."""
    for split, group in (("train", 0), ("val", int(apart))):
        for number in range(3):
            save(tmp_path / f"raw/{split}/images/p{group}_{number}.png", noise(8, 8, seed=number))
            save(tmp_path / f"raw/{split}/masks/p{group}_{number}.png", np.repeat([0, 1], 32).reshape(8, 8))
    code, output, _ = command("data", "import", tmp_path / "raw", tmp_path / "data", "--group", r"(p\d)_\d")
    assert code == 0
    sentence = "warning: 1 group has images in more than one split, so scores are too good (p0 in train and val)"
    assert (sentence in output) == (not apart)
    _, output, _ = command("data", "check", tmp_path / "data")
    assert (sentence in output) == (not apart)

"""Generated street scenes: the same for everybody, with the long tail and the looks that they promise."""

from __future__ import annotations

import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import ndimage

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config import DataConfig
from losspool.segmentation.data.kinds.streets import CLASSES, LOOKS, SPLITS, Streets, classes, compose, dataset, scene
from losspool.segmentation.data.protocol import IGNORE, Dataset
from real_runs import Processes, outcome

SMALL = (64, 96)
SCENES = 90
GOLDEN = ["5fbded33d5ad9516", "c3d0dd7a9e88278f", "77ec8e55d625c308"]

SHARES = {  # of all pixels: the least and the most
    "road": (0.28, 0.40),
    "pavement": (0.02, 0.08),
    "building": (0.28, 0.40),
    "sky": (0.06, 0.18),
    "tree": (0.03, 0.10),
    "car": (0.02, 0.07),
    "fence": (0.004, 0.02),
    "pole": (0.003, 0.01),
    "sign": (0.0008, 0.005),
    "light": (0.0005, 0.005),
    "pedestrian": (0.0008, 0.005),
}


def digest(seed, split, index, size=SMALL):
    return hashlib.sha256(b"".join(part.tobytes() for part in scene(seed, split, index, size))).hexdigest()


@pytest.fixture(scope="module")
def many():
    return [scene(0, "train", index, (256, 256)) for index in range(SCENES)]


# Label noise


def test_noise_gives_whole_blobs_another_class_and_changes_nothing_else():
    size, share = (128, 128), 0.3
    clean, noisy = (Streets("train", count=20, size=size, noise=noise) for noise in (0.0, share))
    blobs = wrong = 0
    for index in range(len(clean)):
        before, after = clean.label(index), noisy.label(index)
        assert np.array_equal(np.asarray(clean.image(index)), np.asarray(noisy.image(index)))
        assert np.array_equal(clean.looks(index), noisy.looks(index))
        assert np.array_equal(before == IGNORE, after == IGNORE)
        for number in range(len(CLASSES)):
            regions, count = ndimage.label(before == number)
            blobs += count
            for region in range(1, count + 1):
                found = np.unique(after[regions == region])
                assert len(found) == 1
                assert found[0] < len(CLASSES)
                wrong += found[0] != number
    assert abs(wrong / blobs - share) < 4 * np.sqrt(share * (1 - share) / blobs)
    assert noisy.fingerprint() != clean.fingerprint() == Streets("train", count=20, size=size).fingerprint()
    again = Streets("train", count=3, size=size, noise=share)
    assert np.array_equal(again.label(2), noisy.label(2))


@pytest.mark.parametrize("noise", [-0.1, 1.5, float("nan")])
def test_noise_is_a_share(noise):
    with pytest.raises(UserError, match=f"noise of streets must be from 0 to 1, not {noise!r}"):
        Streets("train", noise=noise)


def test_only_the_training_split_of_a_recipe_is_noisy():
    data = DataConfig(name="streets", streets_noise=0.5, streets_size=SMALL)
    clean = DataConfig(name="streets", streets_size=SMALL)
    same = {split: data.open(split).fingerprint() == clean.open(split).fingerprint() for split in SPLITS}
    assert same == {"train": False, "val": True, "test": True}


# The same scenes for everybody


def test_it_offers_what_a_dataset_must():
    streets: Dataset = Streets("val", count=3, size=SMALL)
    assert streets.name == "streets/val"
    assert streets.classes == CLASSES
    assert list(streets.names) == ["streets-val-000000", "streets-val-000001", "streets-val-000002"]
    assert len(streets) == 3
    image, label = streets.image(2), streets.label(2)
    assert (image.mode, image.size) == ("RGB", (96, 64))
    assert (label.shape, label.dtype) == (SMALL, np.uint8)
    assert not label.flags.writeable
    drawn = scene(0, "val", 2, SMALL)
    np.testing.assert_array_equal(np.asarray(image), drawn.image)
    np.testing.assert_array_equal(label, drawn.label)
    np.testing.assert_array_equal(streets.looks(2), drawn.looks)


def test_splits_have_their_own_counts():
    assert {split: len(Streets(split)) for split in SPLITS} == {"train": 1000, "val": 100, "test": 200}


def test_a_second_process_draws_the_same_bytes():
    program = (
        "import hashlib\n"
        "from losspool.segmentation.data.kinds.streets import scene\n"
        "for index in range(4):\n"
        f"    parts = scene(7, 'train', index, {SMALL})\n"
        "    print(hashlib.sha256(b''.join(part.tobytes() for part in parts)).hexdigest())\n"
    )
    with Processes() as processes:
        code, output = outcome(processes.fork("plain_python", "-c", program))
    assert code == 0, output
    assert output.split() == [digest(7, "train", index) for index in range(4)]


def test_the_scenes_of_this_version():
    """The bytes are part of the product: if this fails, raise VERSION and put the new ones here."""
    assert compose.VERSION == 1
    assert [digest(0, "train", index)[:16] for index in range(3)] == GOLDEN


def test_seed_split_and_index_each_give_other_scenes():
    keys = [(seed, split, index) for seed in (-1, 0, 1) for split in SPLITS for index in (0, 1)]
    assert len({digest(*key) for key in keys}) == len(keys)


def test_the_first_scenes_do_not_depend_on_the_count():
    few, more = Streets(count=2, size=SMALL), Streets(count=50, size=SMALL)
    for index in range(2):
        np.testing.assert_array_equal(np.asarray(few.image(index)), np.asarray(more.image(index)))
        np.testing.assert_array_equal(few.label(index), more.label(index))
    assert list(more.names)[:2] == list(few.names)


def test_the_fingerprint_changes_with_whatever_changes_labels(monkeypatch):
    def prints():
        return [
            Streets().fingerprint(),
            Streets(seed=1).fingerprint(),
            Streets("val", count=1000).fingerprint(),
            Streets(size=(256, 257)).fingerprint(),
            Streets(count=999).fingerprint(),
            Streets(focal=2).fingerprint(),
        ]

    before = prints()
    assert before == prints()
    monkeypatch.setattr(dataset, "VERSION", compose.VERSION + 1)
    assert len({*before, *prints()}) == 2 * len(before)


# What a scene holds


def test_labels_hold_the_classes_and_void_only(many):
    values = np.unique(np.stack([drawn.label for drawn in many]))
    assert values.tolist() == [*range(len(CLASSES)), IGNORE]


def test_the_classes_have_their_long_tail(many):
    counts = sum(np.bincount(drawn.label.ravel(), minlength=256) for drawn in many)
    shares = counts / counts.sum()
    for index, info in enumerate(CLASSES):
        low, high = SHARES[info.name]
        assert low < shares[index] < high, f"{info.name}: {shares[index]:.4f}"
    assert 0.01 < shares[IGNORE] < 0.03


def test_rare_classes_are_absent_from_many_scenes(many):
    for name, low, high in (("light", 0.2, 0.6), ("pedestrian", 0.4, 0.8), ("sign", 0.4, 0.9)):
        index = [info.name for info in CLASSES].index(name)
        share = np.mean([(drawn.label == index).any() for drawn in many])
        assert low < share < high, f"{name}: {share:.2f}"


def test_looks_partition_their_classes(many):
    for drawn in many:
        for number, look in enumerate(LOOKS, start=1):
            assert (drawn.label[drawn.looks == number] == look.class_index).all()
        looked = np.isin(drawn.label, [look.class_index for look in LOOKS])
        np.testing.assert_array_equal(drawn.looks > 0, looked)
        assert drawn.looks.max() <= len(LOOKS)


def test_looks_are_as_frequent_as_they_say(many):
    counts = sum(np.bincount(drawn.looks.ravel(), minlength=len(LOOKS) + 1) for drawn in many)[1:]
    for index in {look.class_index for look in LOOKS}:
        mine = [number for number, look in enumerate(LOOKS) if look.class_index == index]
        assert sum(LOOKS[number].share for number in mine) == pytest.approx(1)
        for number in mine:
            found = counts[number] / counts[mine].sum()
            assert abs(found - LOOKS[number].share) < 0.13, f"{LOOKS[number].key}: {found:.2f}"
            assert counts[number] > 0


def test_night_is_one_look_for_all_cars_of_a_scene_and_dark(many):
    day, night = (classes.look_of(classes.CAR, name)[1].look for name in ("day", "night"))
    bright: dict[int, list[float]] = {day: [], night: []}
    for drawn in many:
        cars = {int(look) for look in np.unique(drawn.looks[drawn.label == classes.CAR])}
        assert len(cars) <= 1
        for look in cars:
            bright[look].append(float(drawn.image.mean()))
    assert 5 < len(bright[night]) < len(bright[day]) / 3
    assert max(bright[night]) < min(bright[day])


def test_the_picture_shows_what_the_label_says(many):
    """Sky above and brighter than the road by day; leaves greener than walls; each class where it belongs."""
    rows = np.arange(256)[:, None]
    for drawn in many:
        road, sky = drawn.label == classes.ROAD, drawn.label == classes.SKY
        assert (rows * sky).max() < 0.56 * 256
        assert road[: int(0.43 * 256)].sum() == 0
    by_day = [drawn for drawn in many if drawn.image.mean() > 70]

    def color(index):
        return np.mean(
            [drawn.image[drawn.label == index].mean(axis=0) for drawn in by_day if (drawn.label == index).any()], axis=0
        )

    assert color(classes.SKY)[2] > color(classes.ROAD)[2] + 60
    leaf, wall = color(classes.TREE), color(classes.BUILDING)
    assert leaf[1] / leaf.sum() > wall[1] / wall.sum() + 0.02


def test_pictures_are_not_flat(many):
    """Texture and noise everywhere: even the pixels of one class in one row differ."""
    for drawn in many[:20]:
        road = drawn.label[200] == classes.ROAD
        assert drawn.image[200][road].std() > 1.5


@pytest.mark.parametrize("size", [(128, 192), (192, 128), (33, 47), (129, 65)])
def test_other_sizes_hold_the_same_kind_of_scene(size):
    for index in range(5):
        drawn = scene(3, "val", index, size)
        assert drawn.image.shape == (*size, 3)
        assert drawn.label.shape == drawn.looks.shape == size
        assert np.mean(drawn.label == classes.ROAD) > 0.1
        assert np.mean(drawn.label == classes.BUILDING) > 0.05


@pytest.mark.parametrize("size", [(32, 32), (32, 500), (500, 32)])
def test_the_oddest_sizes_are_drawn(size):
    for index in range(5):
        drawn = scene(3, "val", index, size)
        assert drawn.image.shape == (*size, 3)
        assert len(np.unique(drawn.label)) > 2


def test_shares_do_not_depend_on_the_resolution():
    for index in range(4):
        counts = [
            np.bincount(scene(0, "train", index, size).label.ravel(), minlength=256) / (size[0] * size[1])
            for size in ((128, 128), (384, 384))
        ]
        np.testing.assert_allclose(*counts, atol=0.02)


def test_a_longer_focal_length_shows_the_same_street_larger():
    def tall(drawn):
        cars = np.flatnonzero((drawn.label == classes.CAR).any(axis=1))
        return 0 if len(cars) == 0 else cars[-1] - cars[0]

    np.testing.assert_array_equal(scene(0, "train", 0, SMALL, 1.0).image, scene(0, "train", 0, SMALL).image)
    usual, near = ([scene(0, "train", index, (128, 160), focal) for index in range(30)] for focal in (1.0, 2.0))
    assert 1.4 < sum(map(tall, near)) / sum(map(tall, usual)) < 2.2
    counts = [sum(np.bincount(drawn.label.ravel(), minlength=256) for drawn in each) for each in (usual, near)]
    for index in (classes.SIGN, classes.LIGHT, classes.PEDESTRIAN):
        assert counts[1][index] > 1.3 * counts[0][index]
        assert counts[1][index] < 0.01 * counts[1].sum(), "still rare"


# Its use by loaders


@pytest.fixture
def drawn(monkeypatch):
    """The indices of the scenes that are drawn, as they are."""
    indices = []

    def counting(*key):
        indices.append(key[2])
        return scene(*key)

    monkeypatch.setattr(dataset, "scene", counting)
    return indices


def test_one_scene_serves_image_label_and_looks(drawn):
    streets = Streets(size=SMALL)
    for _ in range(2):
        for index in (5, 6):
            streets.image(index), streets.label(index), streets.looks(index)
    assert drawn == [5, 6]


@pytest.mark.parametrize(("room", "kept"), [(3 * 5 * 64 * 96, 3), (1, 1)])
def test_old_scenes_leave_the_memory(drawn, monkeypatch, room, kept):
    monkeypatch.setattr(dataset, "KEPT", room)
    streets = Streets(size=SMALL)
    for index in range(5):
        streets.label(index)
    for index in reversed(range(5)):
        streets.label(index)
    assert drawn == [*range(5), *reversed(range(5 - kept))]


def test_it_crosses_to_a_worker():
    streets = Streets("test", seed=4, size=SMALL, count=9)
    streets.label(3)
    copy = pickle.loads(pickle.dumps(streets))
    assert (copy.name, len(copy), copy.fingerprint()) == (streets.name, 9, streets.fingerprint())
    np.testing.assert_array_equal(copy.label(3), streets.label(3))
    assert len(pickle.dumps(streets)) < 2_000, "scenes are drawn there, not sent"


def test_threads_read_what_one_reads():
    streets, alone = Streets(size=SMALL), Streets(size=SMALL)
    wanted = [index % 12 for index in range(60)]
    with ThreadPoolExecutor(8) as pool:
        images = list(pool.map(streets.image, wanted))
        labels = list(pool.map(streets.label, wanted))
    for index, image, label in zip(wanted, images, labels, strict=True):
        np.testing.assert_array_equal(np.asarray(image), np.asarray(alone.image(index)))
        np.testing.assert_array_equal(label, alone.label(index))


def test_a_numpy_index_is_an_index():
    np.testing.assert_array_equal(Streets(size=SMALL).label(np.int64(2)), Streets(size=SMALL).label(2))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"split": "training"}, "'training'"),
        ({"count": 0}, "not 0"),
        ({"count": -3}, "-3"),
        ({"count": 10**9}, "1000000000"),
        ({"count": 2.5}, "2.5"),
        ({"size": (31, 256)}, r"\(31, 256\)"),
        ({"size": (256, 100_000)}, r"\(256, 100000\)"),
        ({"size": (256,)}, r"\(256,\)"),
        ({"size": 256}, "not 256"),
        ({"size": (64.0, 64)}, r"\(64.0, 64\)"),
        ({"seed": "x"}, "'x'"),
        ({"focal": 0.1}, "not 0.1"),
        ({"focal": 5}, "not 5"),
        ({"focal": "2"}, "not '2'"),
    ],
)
def test_errors_name_what_was_received(arguments, named):
    with pytest.raises(UserError, match=named):
        Streets(**arguments)


@pytest.mark.parametrize("index", [-1, 3])
def test_no_scene_beyond_the_ends(index):
    with pytest.raises(IndexError, match=str(index)):
        Streets(count=3, size=SMALL).label(index)

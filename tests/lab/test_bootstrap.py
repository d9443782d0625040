"""Intervals over images, against a slow loop, SciPy's bootstrap, and the truth of data that was made up."""

import json

import numpy as np
import pytest
from scipy import stats

from lab_runs import CLASSES, IMAGES, write_lab
from losspool.lab import bootstrap
from losspool.lab.bootstrap import RESAMPLES, SEED, Interval, image_intervals, sequences, strata
from losspool.lab.image_counts import ImageCounts
from losspool.lab.records import find_runs
from losspool.lab.statistics import Statistics
from losspool.lab.variants import compare
from losspool.segmentation.errors import UserError


def made_up(names, classes=3, seed=0, right=0.5):
    """Of each class about as many pixels as its place; the rarest is in few images."""
    random = np.random.default_rng(seed)
    labelled = np.random.default_rng(99).poisson(np.geomspace(300, 0.3, classes), (len(names), classes))
    hits = random.binomial(labelled, right)
    predicted = hits + random.poisson(labelled.mean(0) * 0.3, labelled.shape)
    return ImageCounts(tuple(names), np.stack([hits, labelled, predicted], axis=1))


def numbered(count, sequence="a_"):
    return [f"{sequence}{number:04d}" for number in range(count)]


def plain_scores(counts, places):
    """IoU per class of these images (None where there is none) and their mean, in plain Python."""
    found = []
    for label in range(counts.counts.shape[2]):
        hits, labelled, predicted = (
            sum(int(counts.counts[place, kind, label]) for place in places) for kind in (0, 1, 2)
        )
        union = labelled + predicted - hits
        found.append(hits / union if union else None)
    present = [value for value in found if value is not None]
    return found, sum(present) / len(present)


def plain_mean(values):
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def plain_percentiles(values):
    """With the usual straight line between two neighbours."""
    ordered = sorted(value for value in values if value is not None)
    ends = []
    for share in (0.025, 0.975):
        place = share * (len(ordered) - 1)
        below = int(place)
        above = min(below + 1, len(ordered) - 1)
        ends.append(ordered[below] + (place - below) * (ordered[above] - ordered[below]))
    return ends


@pytest.mark.parametrize(
    ("name", "sequence"),
    [
        ("0001TP_008550", "0001TP_"),
        ("Seq05VD_f00000", "Seq05VD_f"),
        ("aachen_000000_000019", "aachen_000000_"),
        ("drive/left12_crop", "drive/left"),
        ("0016", ""),
        ("portrait", "portrait"),
        ("a\nb7", "a\nb"),
    ],
)
def test_a_sequence_is_a_name_up_to_its_last_number(name, sequence):
    assert list(sequences([name])) == [sequence]


def test_a_sequence_is_in_the_order_of_its_numbers():
    assert sequences(["b10", "a2", "b9", "x", "a11"]) == {"b": [2, 0], "a": [1, 4], "x": [3]}


@pytest.mark.parametrize(("images", "lengths"), [(62, [11, 11, 10, 10, 10, 10]), (171, [11, 10]), (101, [11, 10])])
def test_blocks_are_consecutive_and_about_equal(images, lengths):
    (blocks,) = strata(numbered(images))
    assert [place for block in blocks for place in block] == list(range(images))
    assert len(blocks) == round(images / 10)
    assert [len(block) for block in blocks][: len(lengths)] == lengths
    assert {len(block) for block in blocks} == {10, 11}


def test_short_sequences_are_drawn_from_among_each_other():
    names = [*numbered(3, "a_"), *numbered(20, "b_"), "x", *numbered(14, "c_")]
    long, short = strata(names)
    assert [len(block) for block in long] == [10, 10]
    assert [len(block) for block in short] == [3, 1, 14]
    assert strata(["x", "y", "z"]) == [[[0], [1], [2]]]


def test_a_slow_loop_finds_the_same():
    """The same draws, but every sum and mean by hand: two seeds, of which one has two checkpoints."""
    names = [*numbered(23, "a_"), *numbered(15, "b_"), "x", "y", "z"]
    ours = [
        [made_up(names, seed=1, right=0.6), made_up(names, seed=2, right=0.6)],
        [made_up(names, seed=3, right=0.55)],
    ]
    theirs = [[made_up(names, seed=4)], [made_up(names, seed=5)]]
    random = np.random.RandomState(SEED)
    blocks_of = [
        [range(0, 12), range(12, 23)],
        [range(23, 31), range(31, 38)],
        [range(38, 39), range(39, 40), range(40, 41)],
    ]
    draws = [random.randint(len(blocks), size=(RESAMPLES, len(blocks))) for blocks in blocks_of]
    mious, ious = [], []
    seen: dict = {}  # few blocks make few different draws
    for row in range(RESAMPLES):
        drawn = tuple(tuple(sorted(each[row])) for each in draws)
        if drawn not in seen:
            places = [
                place
                for blocks, chosen in zip(blocks_of, drawn, strict=True)
                for block in chosen
                for place in blocks[block]
            ]
            gains, class_gains = [], []
            for our, their in zip(ours, theirs, strict=True):
                one, other = ([plain_scores(counts, places) for counts in run] for run in (our, their))
                gains.append(plain_mean([miou for _, miou in one]) - plain_mean([miou for _, miou in other]))
                pairs = [(plain_mean([s[0][c] for s in one]), plain_mean([s[0][c] for s in other])) for c in range(3)]
                class_gains.append([None if None in pair else pair[0] - pair[1] for pair in pairs])
            seen[drawn] = plain_mean(gains), [plain_mean(column) for column in zip(*class_gains, strict=True)]
        mious.append(seen[drawn][0])
        ious.append(seen[drawn][1])
    found = image_intervals(ours, theirs, 0.95)
    assert [found.miou.low, found.miou.high] == pytest.approx(plain_percentiles(mious), abs=1e-12)
    for interval, column in zip(found.classes, zip(*ious, strict=True), strict=True):
        assert [interval.low, interval.high] == pytest.approx(plain_percentiles(column), abs=1e-12)
    assert found.miou.low < found.miou.high


def test_classes_that_are_missing_are_left_out():
    """A rare class is not in every draw, and one is nowhere."""
    names = [chr(97 + place) for place in range(6)]
    ours, theirs = (
        np.stack([made_up(names, seed=seed).counts[:, kind] for kind in (0, 1, 2)], axis=1) for seed in (1, 2)
    )
    for counts in (ours, theirs):
        counts[:, :, 2] = 0
        counts[1:, :, 1] = 0
        counts[0, :, 1] = (1, 4, 4)
    ours[0, 0, 1] = 3
    found = image_intervals([[ImageCounts(tuple(names), ours)]], [[ImageCounts(tuple(names), theirs)]], 0.95)
    assert found.classes[2] is None
    # Where the rare class is drawn at all, its counts are multiples of one image's: 3/5 against 1/7.
    assert found.classes[1] == Interval(pytest.approx(3 / 5 - 1 / 7), pytest.approx(3 / 5 - 1 / 7))
    assert np.isfinite([found.miou.low, found.miou.high]).all()


def test_single_images_are_the_plain_bootstrap():
    names = [f"{chr(97 + place // 26)}{chr(97 + place % 26)}" for place in range(60)]
    ours, theirs = made_up(names, seed=1, right=0.6), made_up(names, seed=2)

    def gain(places):
        return plain_scores(ours, places)[1] - plain_scores(theirs, places)[1]

    theirs_ends = stats.bootstrap(
        (np.arange(60),), gain, vectorized=False, method="percentile", n_resamples=3000, rng=np.random.default_rng(5)
    ).confidence_interval
    found = image_intervals([[ours]], [[theirs]], 0.95).miou
    width = theirs_ends.high - theirs_ends.low
    assert found.low == pytest.approx(theirs_ends.low, abs=0.06 * width)
    assert found.high == pytest.approx(theirs_ends.high, abs=0.06 * width)


def test_frames_that_are_alike_do_not_count_as_many(monkeypatch):
    """In blocks of ten equal frames there are as many independent images as blocks: the interval must say so."""
    single = made_up([chr(97 + place) for place in range(20)], seed=1, right=0.6)
    other = made_up(single.names, seed=2)
    video = [ImageCounts(tuple(numbered(200)), np.repeat(each.counts, 10, axis=0)) for each in (single, other)]
    wanted = image_intervals([[single]], [[other]], 0.95).miou
    assert image_intervals([[video[0]]], [[video[1]]], 0.95).miou == wanted
    monkeypatch.setattr(bootstrap, "BLOCK", 1)
    naive = image_intervals([[video[0]]], [[video[1]]], 0.95).miou
    assert naive.high - naive.low < 0.5 * (wanted.high - wanted.low)


def test_the_interval_covers_the_truth(monkeypatch):
    """A video whose frames share what their stretch of road is like; the truth is the gain on very much of it."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 400)

    def footage(random, stretches):
        sides = []
        labelled = np.full((10 * stretches, 2), 100)
        for right in (0.7, 0.6):
            rate = np.clip(right + random.normal(0, 0.1, (stretches, 1)), 0, 1).repeat(10, axis=0)
            hits = random.binomial(labelled, rate)
            sides.append(ImageCounts(tuple(numbered(10 * stretches)), np.stack([hits, labelled, hits + 20], axis=1)))
        return sides

    def gain(ours, theirs):
        return plain_scores(ours, range(len(ours.names)))[1] - plain_scores(theirs, range(len(theirs.names)))[1]

    truth = gain(*footage(np.random.default_rng(0), 3000))
    covered = {10: 0, 1: 0}
    for seed in range(100):
        ours, theirs = footage(np.random.default_rng([1, seed]), 25)
        for block in covered:
            monkeypatch.setattr(bootstrap, "BLOCK", block)
            found = image_intervals([[ours]], [[theirs]], 0.95).miou
            covered[block] += found.low <= truth <= found.high
    assert covered[10] >= 88  # 95 in theory, a little less with so few blocks
    assert covered[1] <= 70


def test_equal_methods_differ_by_nothing():
    counts = [made_up(numbered(40), seed=seed) for seed in (1, 2)]
    found = image_intervals([[each] for each in counts], [[each] for each in counts], 0.95)
    assert found.miou == Interval(0, 0)
    assert set(found.classes) == {Interval(0, 0)}


def test_one_block_has_no_interval():
    counts = made_up(numbered(12))
    assert image_intervals([[counts]], [[counts]], 0.95) is None


def test_images_without_labels_alone_are_no_score():
    """A draw of nothing but such images has no mIoU, and is left out."""
    counts = made_up(["a", "b"]).counts
    counts[0] = 0
    side = ImageCounts(("a", "b"), counts)
    assert image_intervals([[side]], [[side]], 0.95).miou == Interval(0, 0)


def test_statistics_take_the_runs_that_are_compared(tmp_path):
    """Shared seeds and the comparison's checkpoints, from the files; and on all images the gain of the tables."""
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(40, 60), previews=False)
    comparison = compare(find_runs([root]), source="test", steps=(40, 60))

    def side(method):
        runs = []
        for seed in (0, 1):
            stored = json.loads((root / f"{method}-s{seed}/evaluation-test-none-40+60.json").read_text())
            runs.append([plain_counts(entry["per_image"]) for entry in stored["checkpoints"]])
        return runs

    ours, theirs = side("lmp"), side("base")
    statistics = Statistics(comparison)
    (variant,) = comparison.others
    assert statistics.image_intervals(variant) == image_intervals(ours, theirs, 0.95)
    scores = [
        sum(plain_scores(counts, range(len(IMAGES)))[1] for run in runs for counts in run) / 4
        for runs in (ours, theirs)
    ]
    assert statistics.gain(variant).mean == pytest.approx(scores[0] - scores[1])
    only = Statistics(compare(find_runs([root]), source="test", steps=(60,)))
    assert only.image_intervals(only.comparison.others[0]) == image_intervals(
        [run[1:] for run in ours], [run[1:] for run in theirs], 0.95
    )


def plain_counts(lines):
    counts = [[line["hits"], line["labelled"], line["predicted"]] for line in lines]
    return ImageCounts(tuple(line["image"] for line in lines), np.array(counts))


def changed(root, change):
    path = root / "lmp-s1/evaluation-test-none-60.json"
    stored = json.loads(path.read_text())
    change(stored["checkpoints"][0])
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry.pop("per_image"),
        lambda entry: entry["per_image"].pop(),
        lambda entry: entry["per_image"][0].update(image="another"),
        lambda entry: entry["per_image"][0]["labelled"].__setitem__(0, 10_000),
    ],
    ids=["not counted", "one image less", "another image", "another label"],
)
def test_without_the_same_images_there_is_no_interval(tmp_path, change):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    changed(root, change)
    statistics = Statistics(compare(find_runs([root]), source="test"))
    assert statistics.image_intervals(statistics.comparison.others[0]) is None
    assert statistics.gain(statistics.comparison.others[0]) is not None


def test_validations_have_no_interval_over_images(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    statistics = Statistics(compare(find_runs([root])))
    assert statistics.image_intervals(statistics.comparison.others[0]) is None


@pytest.mark.parametrize(
    "lines",
    [
        None,
        [],
        [{"image": "a"}],
        ["a"],
        [{"image": "a", "hits": [0] * 4, "labelled": [0] * 4, "predicted": [0] * 4}],
        [{"image": "a", "hits": [0] * 5, "labelled": [0] * 5, "predicted": [0] * 4}],
        [{"image": "a", "hits": [0.5] * 5, "labelled": [1] * 5, "predicted": [1] * 5}],
        [{"image": "a", "hits": [2] * 5, "labelled": [1] * 5, "predicted": [2] * 5}],
        [{"image": "a", "hits": [-1] * 5, "labelled": [1] * 5, "predicted": [2] * 5}],
        [{"image": 7, "hits": [0] * 5, "labelled": [0] * 5, "predicted": [0] * 5}],
        [{"image": "a", "hits": [0] * 5, "labelled": [0] * 5, "predicted": [0] * 5}] * 2,
    ],
)
def test_damaged_counts_are_named(tmp_path, lines):
    assert len(CLASSES) == 5
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    changed(root, lambda entry: entry.update(per_image=lines))
    with pytest.raises(UserError, match=r"lmp-s1/evaluation-test-none-60.json: the counts per image of step 60"):
        compare(find_runs([root]), source="test")

"""Intervals over images, against a slow loop, SciPy's bootstrap, and the truth of data that was made up."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from lab_runs import CLASSES, IMAGES, lab_config, statistics_of, write_lab, write_lab_evaluation, write_lab_run
from losspool.lab.comparison import bootstrap, compare
from losspool.lab.comparison.bootstrap import Interval, image_intervals, joint_interval, sequences, strata, tail_share
from losspool.lab.comparison.runs import ImageCounts, find_runs
from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import DataConfig
from plain_bootstrap import LAB_BLOCKS, plain_intervals, plain_scores, plain_tail, stored_counts


def made_up(names, classes=3, seed=0, right=0.5):
    """Of each class about as many pixels as its place; the rarest is in few images."""
    random = np.random.default_rng(seed)
    labelled = np.random.default_rng(99).poisson(np.geomspace(300, 0.3, classes), (len(names), classes))
    hits = random.binomial(labelled, right)
    predicted = hits + random.poisson(labelled.mean(0) * 0.3, labelled.shape)
    return frames(names, np.stack([hits, labelled, predicted], axis=1))


def frames(names, counts=None):
    """Counts on frames of a video."""
    return ImageCounts(tuple(names), np.zeros((len(names), 3, 1), int) if counts is None else counts, video=True)


def numbered(count, sequence="a_"):
    return [f"{sequence}{number:04d}" for number in range(count)]


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
    (blocks,) = strata(frames(numbered(images)))
    assert [place for block in blocks for place in block] == list(range(images))
    assert len(blocks) == round(images / 10)
    assert [len(block) for block in blocks][: len(lengths)] == lengths
    assert {len(block) for block in blocks} == {10, 11}


def test_short_sequences_are_drawn_from_among_each_other():
    names = [*numbered(3, "a_"), *numbered(20, "b_"), "x", *numbered(14, "c_")]
    long, short = strata(frames(names))
    assert [len(block) for block in long] == [10, 10]
    assert [len(block) for block in short] == [3, 1, 14]
    assert strata(frames(["x", "y", "z"])) == [[[0], [1], [2]]]


def test_an_image_is_its_own_block_unless_the_data_say_otherwise():
    """Numbered photos are not frames of a video."""
    counts = frames(numbered(30))
    assert strata(replace(counts, video=False)) == [[[place] for place in range(30)]]
    assert strata(counts) != strata(replace(counts, video=False))
    patients = ImageCounts(tuple("abcde"), np.zeros((5, 3, 1), int), groups=("p1", "p2", "p1", "p3", "p2"), video=True)
    assert strata(patients) == [[[0, 2], [1, 4], [3]]]


def test_blocks_of_photos_are_drawn_on_request():
    """Four neighbouring photos of one part of a field say no more than one of them."""
    single = [replace(made_up([chr(97 + place) for place in range(20)], seed=seed), video=False) for seed in (1, 2)]
    photos = [ImageCounts(tuple(numbered(80)), np.repeat(each.counts, 4, axis=0), block=4) for each in single]
    assert strata(photos[0]) == [[list(range(4 * block, 4 * block + 4)) for block in range(20)]]
    wanted, found = (image_intervals([[ours]], [[theirs]], 0.95) for ours, theirs in (single, photos))
    assert (found.miou, found.blocks, found.drawn) == (wanted.miou, 20, "block of neighbouring images")
    assert strata(replace(frames(numbered(30)), block=1)) == [[[place] for place in range(30)]]


def test_groups_are_drawn_as_wholes():
    """Ten equal images of a patient say no more than one of them."""
    single = [replace(made_up([chr(97 + place) for place in range(20)], seed=seed), video=False) for seed in (1, 2)]
    names = tuple(numbered(200))
    groups = tuple(name for name in single[0].names for _ in range(10))
    patients = [ImageCounts(names, np.repeat(each.counts, 10, axis=0), groups=groups) for each in single]
    wanted, found = (image_intervals([[ours]], [[theirs]], 0.95) for ours, theirs in (single, patients))
    assert (found.miou, found.blocks, found.drawn) == (wanted.miou, 20, "group")
    assert (wanted.blocks, wanted.drawn) == (20, "image")
    few = [replace(each, groups=tuple("abcd"[place % 4] for place in range(200))) for each in patients]
    assert image_intervals([[few[0]]], [[few[1]]], 0.95).startswith("4 groups cannot be resampled in enough ways")


def test_a_slow_loop_finds_the_same():
    """Two seeds, of which one has two checkpoints; the last class is no label, and predicted by some of them only."""
    names = [*numbered(30, "a_"), *numbered(15, "b_"), "x", "y", "z"]
    one, two, three, four, five = (made_up(names, 4, seed, right=0.7 - seed / 20) for seed in range(1, 6))
    ours, theirs = [[one, two], [three]], [[four], [five]]
    for place, counts in enumerate((one, two, three, four, five)):
        counts.counts[:, :, 3] = 0
        counts.counts[7, 2, 3] = (9, 0, 4, 2, 0)[place]
    blocks = (
        (range(0, 10), range(10, 20), range(20, 30)),
        (range(30, 38), range(38, 45)),
        (range(45, 46), range(46, 47), range(47, 48)),
    )
    sides = ([[counts.counts.tolist() for counts in run] for run in side] for side in (ours, theirs))
    miou, *classes = plain_intervals(*sides, blocks)
    found = image_intervals(ours, theirs, 0.95)
    assert [found.miou.low, found.miou.high] == pytest.approx(miou, abs=1e-6)
    for interval, ends in zip(found.classes, classes, strict=True):
        assert [interval.low, interval.high] == pytest.approx(ends, abs=1e-6)
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
        return plain_scores(ours.counts, places)[1] - plain_scores(theirs.counts, places)[1]

    theirs_ends = stats.bootstrap(
        (np.arange(60),),
        gain,
        vectorized=False,
        method="percentile",
        n_resamples=1500,
        confidence_level=1 - 2 * tail_share([60], 0.95),
        rng=np.random.default_rng(5),
    ).confidence_interval
    found = image_intervals([[ours]], [[theirs]], 0.95).miou
    width = theirs_ends.high - theirs_ends.low
    assert found.low == pytest.approx(theirs_ends.low, abs=0.06 * width)
    assert found.high == pytest.approx(theirs_ends.high, abs=0.06 * width)


def test_frames_that_are_alike_do_not_count_as_many():
    """In blocks of ten equal frames there are as many independent images as blocks: the interval must say so."""
    single = made_up([chr(97 + place) for place in range(20)], seed=1, right=0.6)
    other = made_up(single.names, seed=2)
    video = [frames(numbered(200), np.repeat(each.counts, 10, axis=0)) for each in (single, other)]
    wanted = image_intervals([[single]], [[other]], 0.95).miou
    assert image_intervals([[video[0]]], [[video[1]]], 0.95).miou == wanted
    naive = image_intervals(*([[replace(each, block=1)]] for each in video), 0.95).miou
    assert naive.high - naive.low < 0.5 * (wanted.high - wanted.low)


def test_with_few_blocks_the_quantiles_lie_further_out():
    for sizes in ([5], [6], [10], [6, 17], [5, 5], [2, 2, 5], [6, 1]):
        varied = [size for size in sizes if size > 1]
        assert tail_share(sizes, 0.95) == pytest.approx(plain_tail(sum(varied), len(varied)), rel=1e-3, abs=1e-12)
    assert 0.0249 < tail_share([5000], 0.95) < 0.025
    # Of a mean they are Student's interval, whose coverage is exact.
    values = np.random.default_rng(3).normal(0, 1, 10)
    low, high = np.quantile(
        np.random.default_rng(4).choice(values, (200_000, 10)).mean(1),
        [tail_share([10], 0.95), 1 - tail_share([10], 0.95)],
    )
    reach = 2.2622 * values.std(ddof=1) / 10**0.5
    assert high - low == pytest.approx(2 * reach, rel=0.05)


@pytest.mark.parametrize("stretches", [6, 25])
def test_the_interval_covers_the_truth(stretches, monkeypatch):
    """A video whose frames share what their stretch of road is like; the truth is the gain on very much of it."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 1000)

    def footage(random, stretches):
        sides = []
        labelled = np.full((10 * stretches, 2), 100)
        for right in (0.7, 0.6):
            rate = np.clip(right + random.normal(0, 0.1, (stretches, 1)), 0, 1).repeat(10, axis=0)
            hits = random.binomial(labelled, rate)
            sides.append(frames(numbered(10 * stretches), np.stack([hits, labelled, hits + 20], axis=1)))
        return sides

    def gain(ours, theirs):
        return (
            plain_scores(ours.counts, range(len(ours.names)))[1]
            - plain_scores(theirs.counts, range(len(theirs.names)))[1]
        )

    truth = gain(*footage(np.random.default_rng(0), 3000))
    covered = {10: 0, 1: 0}
    for seed in range(100):
        ours, theirs = footage(np.random.default_rng([1, seed]), stretches)
        for block in covered:
            sides = ([[replace(each, block=block)]] for each in (ours, theirs))
            found = image_intervals(*sides, 0.95).miou
            covered[block] += found.low <= truth <= found.high
    assert 90 <= covered[10] <= 99
    assert covered[1] <= 70


def test_equal_methods_differ_by_nothing():
    counts = [made_up(numbered(60), seed=seed) for seed in (1, 2)]
    found = image_intervals([[each] for each in counts], [[each] for each in counts], 0.95)
    assert found.miou == Interval(0, 0)
    assert set(found.classes) == {Interval(0, 0)}


@pytest.mark.parametrize(("images", "there"), [(12, False), (20, False), (40, False), (50, True)])
def test_too_few_blocks_have_no_interval(images, there):
    """The mean of two blocks is half the time on one side of the truth in both: their span is no 95 % interval."""
    counts = made_up(numbered(images))
    found = image_intervals([[counts]], [[counts]], 0.95)
    blocks = round(images / 10)
    why = f"{blocks} block{'s' * (blocks > 1)} of neighbouring images cannot be resampled in enough ways"
    assert isinstance(found, str) != there
    assert there or found.startswith(why)
    sizes = [len(blocks) for blocks in strata(counts)]
    furthest = sizes[0] ** -sizes[0]  # the share of draws that are the best block again and again
    assert (len(sizes), there) == (1, sizes[0] > 1 and plain_tail(sizes[0]) > furthest)


def test_images_without_labels_alone_are_no_score():
    """A draw of nothing but such images has no mIoU, and is left out."""
    names = tuple("abcdef")
    counts = made_up(names).counts
    counts[:5] = 0
    side = ImageCounts(names, counts)
    assert image_intervals([[side]], [[side]], 0.95).miou == Interval(0, 0)


def test_statistics_take_the_runs_that_are_compared(tmp_path):
    """The comparison's checkpoints of the seeds that both have; on all images the gain is that of the tables."""
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(40, 60), previews=False)
    ours, theirs = ([stored_counts(root / f"{method}-s{seed}") for seed in (0, 1)] for method in ("lmp", "base"))
    found = statistics_of(root, source="test", steps=(60,))
    (variant,) = found.comparison.others
    last = [[run[1:] for run in side] for side in (ours, theirs)]
    miou, *classes = plain_intervals(*last, LAB_BLOCKS)
    intervals = found.image_intervals(variant)
    assert [intervals.miou.low, intervals.miou.high] == pytest.approx(miou, abs=1e-6)
    assert [[each.low, each.high] for each in intervals.classes] == [pytest.approx(ends, abs=1e-6) for ends in classes]
    scores = [sum(plain_scores(run[1], range(len(IMAGES)))[1] for run in side) / 2 for side in (ours, theirs)]
    assert found.gain(variant).mean == pytest.approx(scores[0] - scores[1])
    write_lab_evaluation(
        write_lab_run(root / "lmp-s9", lab_config("lmp", 9), previews=False), lab_config("lmp", 9), level=1
    )
    more = statistics_of(root, source="test", steps=(60,))
    assert more.image_intervals(more.comparison.others[0]) == intervals


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
    statistics = statistics_of(root, source="test")
    assert statistics.image_intervals(statistics.comparison.others[0]) is None
    assert "counts of the same images" in statistics.no_image_intervals(statistics.comparison.others[0])
    assert statistics.gain(statistics.comparison.others[0]) is not None


def test_validations_have_no_interval_over_images(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    statistics = statistics_of(root)
    assert statistics.image_intervals(statistics.comparison.others[0]) is None
    assert "name an evaluation with --scores" in statistics.no_image_intervals(statistics.comparison.others[0])


@pytest.mark.parametrize(
    ("dataset", "stored", "video"),
    [("camvid", {}, True), ("cityscapes", {}, True), ("folder", {}, False), ("folder", {"video": True}, True)],
)
def test_evaluations_of_version_0_1_are_of_videos_by_their_data(tmp_path, dataset, stored, video):
    config = lab_config("base", data=DataConfig(dataset, "/data"))
    path = write_lab_evaluation(write_lab_run(tmp_path / "run", config, previews=False), config, level=0.4)
    content = json.loads(path.read_text())
    content.pop("video")
    path.write_text(json.dumps({**content, **stored}))
    (run,) = find_runs([tmp_path])
    assert run.scores("test")[60]["per_image"].video == video


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


def test_the_joint_interval_is_students_where_only_seeds_or_only_images_vary():
    gains = np.array([0.01, 0.03, 0.02, 0.05])
    still = np.full(1000, gains.mean())
    found, expected = joint_interval(gains, still, [20], 0.95), stats.ttest_1samp(gains, 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    images = np.random.default_rng(0).normal(0.02, 0.01, 12)
    draws = np.random.default_rng(1).choice(images, (100_000, 12)).mean(1)
    found, expected = joint_interval(np.full(3, images.mean()), draws, [12], 0.95), stats.ttest_1samp(images, 0)
    ends = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), rel=0.01, abs=2e-4)
    assert joint_interval(gains[:1], still, [20], 0.95) is None
    assert joint_interval(np.full(3, 0.5), np.full(9, 0.5), [20], 0.95) == Interval(0.5, 0.5)


@pytest.mark.parametrize(
    ("seeds", "of_seeds", "of_images"),
    [(3, 1, 1), (5, 1, 1), (5, 1, 0.2), (3, 0.2, 1), (2, 1, 1), (2, 3, 1), (2, 5, 1), (3, 4, 1), (5, 3, 1)],
)
def test_the_joint_interval_covers_the_truth(seeds, of_seeds, of_images):
    """Gains vary from seed to seed and from image to image; the truth is 0. Images alone cover too little."""
    random, images, draws = np.random.default_rng([seeds, int(10 * of_seeds)]), 20, 400
    cases, covered, narrow = 1000, 0, 0
    picked = random.integers(images, size=(draws, images))
    for _ in range(cases):
        gains = of_seeds * random.normal(0, 1, (seeds, 1)) + of_images * random.normal(0, images**0.5, images)
        resampled = gains.mean(0)[picked].mean(1)
        found = joint_interval(gains.mean(1), resampled, [images], 0.95)
        covered += found.low <= 0 <= found.high
        low, high = np.quantile(resampled, [0.025, 0.975])
        narrow += low <= 0 <= high
    assert 0.93 * cases <= covered <= 0.995 * cases
    assert narrow < 0.93 * cases


def test_the_joint_interval_of_runs_is_of_their_gains_and_resamples():
    sides = [
        [[made_up(numbered(120), seed=seed, right=right)] for seed in seeds]
        for right, seeds in ((0.6, (1, 2, 3)), (0.5, (4, 5, 6)))
    ]
    found = image_intervals(*sides, 0.95)
    gains = [
        plain_scores(ours.counts, range(120))[1] - plain_scores(theirs.counts, range(120))[1]
        for (ours,), (theirs,) in zip(*sides, strict=True)
    ]
    middle, seeds = np.mean(gains), stats.ttest_1samp(gains, 0).confidence_interval()
    assert (found.joint.low + found.joint.high) / 2 == pytest.approx(middle)
    assert found.joint.high - found.joint.low > 0.5 * (found.miou.high - found.miou.low)
    assert found.joint.high - middle < (seeds.high - middle) + (found.miou.high - middle)

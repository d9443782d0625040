"""Laws of the sampler. The loader's side (workers, resume, ranks) is in test_loader.py."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.config.schema import SamplingConfig
from losspool.segmentation.data.crops.indexing import ClassIndex
from losspool.segmentation.training.sampling import CropSampler, DrawStream, RunningIoU

CLASSES = 4
HELD = [[0, 1], [0], [0, 2], [0, 1, 2], [0], [0, 2], [0]]  # class 3 is in no image


def small_index():
    """Every (image, class) pair has its own three positions."""
    pixels = np.zeros((len(HELD), CLASSES), np.int64)
    positions, starts = [], [0]
    for image, held in enumerate(HELD):
        for label in range(CLASSES):
            if label in held:
                pixels[image, label] = 3
                positions += [(100 * image + place, 10 * label) for place in range(3)]
            starts.append(len(positions))
    sizes = np.full((len(HELD), 2), 1000)
    return ClassIndex(pixels, sizes, np.array(starts), np.array(positions, np.int32))


def sampler(**settings):
    return CropSampler(small_index(), SamplingConfig(**settings), seed=5)


def perfect_but(label, share):
    """Counts that give every class IoU 1, except for ``label``, whose IoU is ``share``; 3 is wholly missed."""
    counts = torch.diag(torch.tensor([1000, 1000, 1000, 0]))
    counts[label, label] = int(1000 * share)
    counts[label, 3] = 1000 - int(1000 * share)
    return counts


def test_mix_0_is_exactly_uniform():
    """Every lap holds every image once: no draw is aimed, and the counts are equal, not merely alike."""
    draws = sampler(mix=0.0).step(0, 50 * len(HELD))
    assert all(draw.aim is None for draw in draws)
    laps = [[draw.image for draw in draws[i : i + len(HELD)]] for i in range(0, len(draws), len(HELD))]
    assert all(sorted(lap) == list(range(len(HELD))) for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 40
    assert len({draw.seed for draw in draws}) == len(draws)


@pytest.mark.parametrize(("preference", "mix"), [("inverse", 0.25), ("complement", 0.5), ("inverse", 1.0)])
def test_frequencies_follow_the_stated_probabilities(preference, mix):
    one = sampler(mix=mix, preference=preference, lag=1)
    one.running.observe(perfect_but(1, 0.4))
    scores = np.array([1.0, 0.4, 1.0])
    weights = 1 / (scores + 0.05) if preference == "inverse" else 1 - scores
    expected = weights / weights.sum()
    draws = one.step(2, 20_000)
    aimed = [draw for draw in draws if draw.aim is not None]
    assert len(aimed) / len(draws) == pytest.approx(mix, abs=0.015)
    counts = Counter(draw.label for draw in aimed)
    assert counts[3] == 0  # IoU 0, but no image holds it
    np.testing.assert_allclose([counts[label] / len(aimed) for label in range(3)], expected, atol=0.02)
    uniform = Counter(draw.image for draw in draws if draw.aim is None)
    if mix < 1:
        assert chisquare([uniform[image] for image in range(len(HELD))]).pvalue > 1e-3


def test_the_stated_probabilities_to_the_digit():
    scores = np.array([1.0, 0.3, 0.0, 0.0])
    assert sampler().probabilities(scores) == pytest.approx([1 / 25, 3 / 25, 21 / 25, 0])
    assert sampler(preference="complement").probabilities(scores) == pytest.approx([0, 0.7 / 1.7, 1 / 1.7, 0])


def test_images_and_positions_of_the_class_are_drawn_alike():
    draws = sampler(mix=1.0).step(0, 30_000)
    for label in range(3):
        holders = [image for image, held in enumerate(HELD) if label in held]
        drawn = Counter((draw.image, draw.row, draw.column) for draw in draws if draw.label == label)
        places = [(image, 100 * image + place, 10 * label) for image in holders for place in range(3)]
        assert set(drawn) == set(places)
        assert chisquare([drawn[place] for place in places]).pvalue > 1e-3


def test_a_class_that_was_never_predicted_counts_as_iou_0():
    running = RunningIoU(CLASSES, decay=0.5, lag=1)
    assert running.after(0).tolist() == [0, 0, 0, 0]
    counts = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)
    counts[0, 0], counts[1, 0] = 10, 10  # class 1 is there, but 0 is predicted; 2 and 3 do not occur
    running.observe(counts)
    assert running.after(1).tolist() == [0.5, 0, 0, 0]


def test_the_running_iou_is_that_of_the_decayed_counts():
    running = RunningIoU(CLASSES, decay=0.9, lag=3)
    random = np.random.default_rng(0)
    matrix = np.zeros((CLASSES, CLASSES))
    for step in range(1, 20):
        counts = random.integers(0, 50, (CLASSES, CLASSES))
        matrix = 0.9 * matrix + counts
        running.observe(torch.from_numpy(counts))
        union = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        np.testing.assert_allclose(running.after(step), matrix.diagonal() / union, rtol=1e-12)
        np.testing.assert_array_equal(running.after(step), running.after(step))


def test_draws_use_the_iou_of_lag_steps_ago():
    """Whatever is observed in the last ``lag - 1`` steps changes nothing; one step earlier it does."""
    lag, step = 5, 9

    def draws(changed_at):
        one = sampler(mix=1.0, lag=lag)
        for done in range(step):
            one.running.observe(perfect_but(1, 0.0 if done == changed_at else 1.0))
        return one.step(step, 500)

    unchanged = draws(None)
    assert [draws(done) == unchanged for done in range(step)] == [False] * 4 + [True] * 5


def test_asking_for_what_has_not_happened_is_an_error():
    one = sampler(lag=2)
    one.step(2, 4)
    with pytest.raises(RuntimeError, match="the IoU after 1 steps is not known yet: 0 are done"):
        one.step(3, 4)


def share_of_class(one, label, step):
    aimed = [draw.label for draw in one.step(step, 4000) if draw.aim]
    return aimed.count(label) / len(aimed)


def test_a_class_that_improves_is_drawn_less_and_one_that_falls_back_more():
    """A simulated training: class 1 goes from IoU 0 up to 1 and back, and its share of aimed crops follows."""
    one = sampler(mix=0.5, lag=4, decay=0.5)
    shares, expected = [], []
    for step, score in enumerate([*np.linspace(0, 1, 30), *[1.0] * 10, *np.linspace(1, 0, 30)]):
        if step % 10 == 9:
            shares.append(share_of_class(one, 1, step))
            scores = one.running.after(step - 4)[:3]
            expected.append((1 / (scores + 0.05))[1] / (1 / (scores + 0.05)).sum())
        one.running.observe(perfect_but(1, score))
    np.testing.assert_allclose(shares, expected, atol=0.04)
    assert shares[0] > shares[1] > shares[2] > shares[3] - 0.04
    assert shares[3] == pytest.approx(1 / 3, abs=0.04)
    assert shares[3] - 0.04 < shares[4] < shares[5] < shares[6]
    assert shares[6] > 0.6


def test_every_class_perfect_is_no_division_by_zero():
    one = sampler(mix=1.0, preference="complement", lag=1)
    one.running.observe(torch.diag(torch.tensor([9, 9, 9, 0])))
    drawn = {draw.label for draw in one.step(2, 200)}
    assert drawn == {0, 1, 2}


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_ranks_share_the_draws_of_one_process(ranks, accumulate):
    """Draw i goes to rank i mod k."""
    whole = sampler().step(3, 12)
    parts = []
    for rank in range(ranks):
        options = {"batch": 12 // ranks // accumulate, "accumulate": accumulate, "rank": rank, "ranks": ranks}
        parts.append([draw for batch in DrawStream(sampler(), first=3, last=4, **options) for draw in batch])
    assert [parts[number % ranks][number // ranks] for number in range(12)] == whole


def test_the_draw_of_a_number_depends_on_the_seed_alone():
    assert sampler().step(7, 10) == sampler().step(7, 10)
    assert sampler().step(7, 10) == sampler().step(0, 80)[70:]
    other = CropSampler(small_index(), SamplingConfig(), seed=6)
    assert other.step(7, 10) != sampler().step(7, 10)
    seeds = [{draw.seed for draw in one.step(0, 100)} for one in (other, sampler())]
    assert not seeds[0] & seeds[1]


def test_a_restored_state_goes_on_like_the_one_that_was_saved():
    """Also what is not in the lag's buffer: the matrix itself."""
    random = np.random.default_rng(0)
    counts = [torch.from_numpy(random.integers(0, 50, (CLASSES, CLASSES))) for _ in range(20)]
    one, other = RunningIoU(CLASSES, 0.9, 3), RunningIoU(CLASSES, 0.9, 3)
    other.observe(counts[5])  # what a restored one had seen before is forgotten
    for each in counts[:8]:
        one.observe(each)
    other.load_state_dict(one.state_dict())
    for step, each in enumerate(counts[8:], start=9):
        one.observe(each)
        other.observe(each)
        np.testing.assert_array_equal(one.after(step), other.after(step))
    assert len(one.state_dict()["history"]) == 4  # the lag's three, and the present


BAD = {
    "mix": (1.5, "sampling.mix must be at most 1, got 1.5"),
    "preference": ("worst", "sampling.preference must be one of inverse, complement, got 'worst'"),
    "decay": (1.0, "sampling.decay must be less than 1, got 1.0"),
    "lag": (0, "sampling.lag must be at least 1, got 0"),
}


@pytest.mark.parametrize("field", BAD)
def test_bad_settings_are_named(field):
    value, message = BAD[field]
    with pytest.raises(UserError, match=message):
        SamplingConfig(**{field: value})


def test_labels_without_any_class_are_refused():
    index = ClassIndex(np.zeros((2, 3), np.int64), np.ones((2, 2)), np.zeros(7, np.int64), np.zeros((0, 2), np.int32))
    with pytest.raises(UserError, match="no label image of the training data contains any class"):
        CropSampler(index, SamplingConfig(mix=0.0), seed=0)

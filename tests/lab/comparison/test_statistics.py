"""Paired differences over seeds, against a printed table of Student's t."""

import statistics

import pytest

from losspool.lab.comparison import Difference, Interval, holm
from plain_bootstrap import T_975


def test_the_interval_is_students_over_shared_seeds():
    ours, theirs = {0: 0.5, 1: 0.7, 2: 0.65, 7: 0.1}, {2: 0.6, 1: 0.55, 0: 0.52, 9: 0.9}
    gains = [ours[seed] - theirs[seed] for seed in (0, 1, 2)]
    reach = T_975[2] * statistics.stdev(gains) / 3**0.5
    found = Difference.of(ours, theirs)
    assert (found.mean, found.pairs) == (pytest.approx(statistics.mean(gains)), 3)
    assert (found.interval.low, found.interval.high) == pytest.approx((found.mean - reach, found.mean + reach))


def test_equal_gains_have_an_interval_without_length():
    assert Difference.of({0: 0.75, 1: 0.5}, {0: 0.5, 1: 0.25}) == Difference(0.25, Interval(0.25, 0.25), 2)


def test_one_pair_has_no_interval_and_none_no_difference():
    assert Difference.of({0: 0.75, 1: 0.5}, {0: 0.5}) == Difference(0.25, None, 1)
    assert Difference.of({0: 0.75}, {1: 0.5}) is None


def test_the_p_value_is_that_of_a_paired_t_test():
    ours, theirs = {0: 0.5, 1: 0.7, 2: 0.65}, {0: 0.52, 1: 0.55, 2: 0.6}
    gains = [ours[seed] - theirs[seed] for seed in ours]
    t = statistics.mean(gains) / (statistics.stdev(gains) / 3**0.5)
    # Student's distribution with two degrees of freedom has a closed form.
    assert Difference.of(ours, theirs).p_value == pytest.approx(1 - abs(t) / (2 + t * t) ** 0.5)


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.2], [0.2]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.04, 0.001], [0.04, 0.002]),
        ([], []),
    ],
)
def test_holm_by_hand(p_values, expected):
    """The smallest times k, the next times k - 1, …; never less than one before it, never more than 1."""
    assert holm(p_values) == pytest.approx(expected)

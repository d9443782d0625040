"""Laws that hold for every problem, on problems that Hypothesis thinks up."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tolerances
from losspool import max_pool, pooling_weights

settings.register_profile("quick", max_examples=100, deadline=None, derandomize=True)
settings.load_profile("quick")

ps = st.one_of(st.sampled_from([1.0, 1.001, 1.1, 1.3, 2.0, 10.0, math.inf]), st.floats(1.0, 50.0))
loss_values = st.one_of(
    st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 50, width=32), st.floats(0, 2.0**-100, width=32), st.floats(0, 1e30)
)
loss_lists = st.lists(loss_values, min_size=1, max_size=60)
shares = st.floats(0.01, 1.0)
SLACK = 1 + 2 * tolerances.VALUE


def tensor(values):
    return torch.tensor([values], dtype=torch.float32)


def pooled(losses, **options):
    return max_pool(losses, **options).item()


def pixels(share, n):
    return min(max(share * n, 1.0), n)


@given(loss_lists, ps, shares)
def test_lies_between_mean_and_maximum(values, p, m):
    losses = tensor(values)
    value = pooled(losses, p=p, m=m)
    assert losses.double().mean().item() <= value * SLACK + 1e-44
    assert value <= losses.max().item() * SLACK


@given(loss_lists, ps, ps, shares)
def test_never_rises_with_p(values, p, other, m):
    low, high = sorted([p, other])
    assert pooled(tensor(values), p=high, m=m) <= pooled(tensor(values), p=low, m=m) * SLACK + 1e-44


@given(loss_lists, ps, shares, shares)
def test_never_rises_with_m(values, p, m, other):
    low, high = sorted([m, other])
    assert pooled(tensor(values), p=p, m=high) <= pooled(tensor(values), p=p, m=low) * SLACK + 1e-44


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]) | st.floats(0.125, 50, width=32), min_size=1), ps, shares)
def test_supports_at_least_m_positive_losses(values, p, m):
    losses = tensor(values)
    support = int((pooling_weights(losses, p=p, m=m) > 0).sum())
    assert support >= min(math.ceil(pixels(m, len(values)) - 1e-9), int((losses > 0).sum()))


@given(loss_lists, ps, shares, st.randoms(use_true_random=False))
def test_permuting_the_pixels_permutes_the_weights(values, p, m, random):
    order = list(range(len(values)))
    random.shuffle(order)
    losses = tensor(values)
    weights = pooling_weights(losses, p=p, m=m)
    permuted = pooling_weights(losses[:, order], p=p, m=m)
    torch.testing.assert_close(permuted, weights[:, order], rtol=1e-6, atol=0)


@given(st.lists(st.floats(2.0**-20, 50, width=32) | st.just(0.0), min_size=1), ps, shares, st.integers(-40, 40))
def test_scaling_by_a_power_of_two_scales_the_loss_and_keeps_the_weights(values, p, m, exponent):
    losses, scale = tensor(values), 2.0**exponent
    scaled, plain = pooling_weights(losses * scale, p=p, m=m), pooling_weights(losses, p=p, m=m)
    torch.testing.assert_close(scaled, plain, rtol=1e-6, atol=0)
    assert pooled(losses * scale, p=p, m=m) == pooled(losses, p=p, m=m) * scale


@given(loss_lists, ps, shares)
def test_weights_never_fall_as_the_loss_rises(values, p, m):
    losses = tensor(values + values)  # every loss at least twice: equal losses get equal weights
    weights = pooling_weights(losses, p=p, m=m)[0]
    by_loss = {}
    for loss, weight in zip(losses[0].tolist(), weights.tolist(), strict=True):
        assert by_loss.setdefault(loss, weight) == weight
    in_order = [by_loss[loss] for loss in sorted(by_loss)]
    assert in_order == sorted(in_order)


@given(loss_lists, shares)
def test_p_towards_one_is_the_mean_of_the_hardest(values, m):
    losses = tensor(values)
    count = pixels(m, len(values))
    hardest = sorted(values, reverse=True)
    whole = int(count)
    rest = (count - whole) * hardest[whole] if whole < len(values) else 0.0
    expected = (sum(float(torch.tensor(x)) for x in hardest[:whole]) + rest) / count
    for p in (1, 1 + 1e-9):
        assert math.isclose(pooled(losses, p=p, m=m), expected, rel_tol=3e-6, abs_tol=1e-44)


@given(loss_lists, shares)
def test_p_towards_infinity_is_the_mean(values, m):
    losses = tensor(values)
    mean = losses.double().mean().item()
    assert math.isclose(pooled(losses, p=math.inf, m=m), mean, rel_tol=1e-6, abs_tol=1e-44)
    assert math.isclose(pooled(losses, p=1e7, m=m), mean, rel_tol=2e-6 * len(values), abs_tol=1e-44)


@given(loss_lists, ps)
def test_all_pixels_is_the_mean(values, p):
    losses = tensor(values)
    for m in (1.0, len(values), len(values) + 7):
        assert math.isclose(pooled(losses, p=p, m=m), losses.double().mean().item(), rel_tol=1e-6, abs_tol=1e-44)
        assert torch.equal(pooling_weights(losses, p=p, m=m), torch.full_like(losses, 1 / len(values)))


@given(loss_lists, ps, shares, st.lists(st.integers(0, 60), max_size=40))
def test_more_void_changes_nothing(values, p, m, places):
    mixed, mask = [float(x) for x in values], [True] * len(values)
    for place in places:
        mixed.insert(min(place, len(mixed)), math.nan if place % 2 else 1e30)
        mask.insert(min(place, len(mask)), False)
    losses, valid = tensor(mixed), torch.tensor([mask])
    alone = pooled(tensor(values), p=p, m=m)
    assert math.isclose(pooled(losses, p=p, m=m, mask=valid), alone, rel_tol=1e-6, abs_tol=1e-44)
    weights = pooling_weights(losses, p=p, m=m, mask=valid)
    assert (weights[~valid] == 0).all()
    torch.testing.assert_close(weights[valid], pooling_weights(tensor(values), p=p, m=m)[0], rtol=2e-6, atol=0)


@given(loss_lists, ps, st.integers(1, 60))
def test_m_as_a_count_equals_m_as_a_share(values, p, count):
    count = min(count, len(values))
    share = count / len(values)
    assert math.isclose(
        pooled(tensor(values), p=p, m=count), pooled(tensor(values), p=p, m=share), rel_tol=1e-5, abs_tol=1e-44
    )

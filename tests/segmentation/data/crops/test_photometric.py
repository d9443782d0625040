"""Photometric augmentation against its definitions, one operation at a time."""

import numpy as np
import pytest
from PIL import Image

from losspool.segmentation.data.crops.photometric import NUMBERS, recoloured

OFF = 0.2
"""A chance that leaves an operation out."""
LUMA = np.array([0.299, 0.587, 0.114])
OPERATIONS = ("brightness", "contrast", "saturation", "hue", "blur")


def pixels(seed=0, low=90, high=150):
    """Small steps around a middle grey, so that nothing is clipped."""
    return np.random.default_rng(seed).integers(low, high, (20, 30, 3)).astype(np.uint8)


def changed(image, operation, amount, strength=1.0, grey=0.0):
    """With one operation, by ``amount`` from -1 to 1."""
    chances = [(amount + 3) / 4 if name == operation else OFF for name in OPERATIONS] + [0.5]
    assert len(chances) == NUMBERS
    return np.asarray(recoloured(Image.fromarray(image), strength, grey, chances)).astype(float)


@pytest.mark.parametrize("amount", [-1, -0.4, 0.5, 0.9])
@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_brightness_contrast_and_saturation(amount, strength):
    image, factor = pixels(), 1 + 0.5 * amount * strength
    mean, luma = image @ LUMA, (image @ LUMA)[..., None]
    np.testing.assert_allclose(changed(image, "brightness", amount, strength), image * factor, atol=0.51)
    expected = (image - mean.mean()) * factor + mean.mean()
    np.testing.assert_allclose(changed(image, "contrast", amount, strength), expected, atol=0.51)
    np.testing.assert_allclose(changed(image, "saturation", amount, strength), luma + (image - luma) * factor, atol=0.6)


@pytest.mark.parametrize("amount", [-1, 0.5])
def test_hue_turns_the_colour_around_grey(amount):
    """The plane of U and V, by 18 degrees at most; the luma stays. Up to the shape of the plane's axes."""
    image = pixels()
    after = changed(image, "hue", amount)
    np.testing.assert_allclose(after @ LUMA, image @ LUMA, atol=0.8)
    u, v = (
        (0.492 * (x[..., 2] - x @ LUMA) for x in (image, after)),
        (0.877 * (x[..., 0] - x @ LUMA) for x in (image, after)),
    )
    (before, behind) = (a + 1j * b for a, b in zip(u, v, strict=True))
    strong = np.abs(before) > 8
    turned = np.degrees(np.angle(behind[strong] / before[strong]))
    assert np.abs(np.median(turned)) == pytest.approx(18 * abs(amount), abs=1.5)
    assert np.median(np.abs(behind[strong]) / np.abs(before[strong])) == pytest.approx(1, abs=0.03)


def test_grey_is_the_luma():
    image = pixels(low=0, high=256)
    grey = np.asarray(recoloured(Image.fromarray(image), 0.0, 0.6, [0.9] * 5 + [0.5]))
    np.testing.assert_allclose(grey, np.repeat((image @ LUMA)[..., None], 3, 2), atol=0.7)
    unchanged = np.asarray(recoloured(Image.fromarray(image), 0.0, 0.4, [0.9] * 5 + [0.5]))
    np.testing.assert_array_equal(unchanged, image)


def test_blur_softens_an_edge_and_keeps_the_mean():
    edge = np.zeros((20, 30, 3), np.uint8)
    edge[:, 15:] = 200
    after = changed(edge, "blur", 0.9)
    assert 0 < after[10, 14, 0] < after[10, 15, 0] < 200
    assert after.mean() == pytest.approx(edge.mean(), abs=0.5)
    assert np.ptp(after[:, 3]) == 0


def test_each_operation_is_applied_to_half_of_the_images():
    image = Image.fromarray(pixels())
    for place, name in enumerate(OPERATIONS):
        chances = np.full((200, NUMBERS), OFF)
        chances[:, place] = (np.arange(200) + 0.5) / 200
        found = [np.asarray(recoloured(image, 1.0, 0.0, row.tolist())) for row in chances]
        assert np.mean([(each != np.asarray(image)).any() for each in found]) == pytest.approx(0.5, abs=0.1), (
            name
        )  # a tiny change rounds to none

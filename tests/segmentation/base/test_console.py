"""Numbers in messages."""

import pytest

from losspool.segmentation.base import counted, percent

SHARES = {0.0: "0 %", 1.0: "100 %", 0.9999: "99.9 %", 0.996: "99.6 %", 0.26: "26 %", 0.1: "10 %", 0.055: "5.5 %"}
SHARES |= {0.01: "1 %", 0.00067: "0.067 %", 2e-6: "0.0002 %", 1e-9: "less than 0.0001 %"}


@pytest.mark.parametrize("share", SHARES)
def test_a_share_has_no_exponent_and_is_100_percent_only_for_all(share):
    assert percent(share) == SHARES[share]


def test_one_is_singular():
    assert [counted(number, "image") for number in (0, 1, 2)] == ["0 images", "1 image", "2 images"]
    assert [counted(number, "image has", "images have") for number in (1, 2)] == ["1 image has", "2 images have"]

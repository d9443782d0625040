"""The brushes that draw generated scenes."""

from __future__ import annotations

import numpy as np
import pytest

from losspool.segmentation.data.kinds.streets import canvas, classes

INK = classes.Ink(classes.CAR, 1)


RED = (1.0, 0.0, 0.0)


def test_a_rectangle_covers_its_pixels_exactly():
    sheet = canvas.Canvas((8, 10))
    sheet.rectangle((2, 3), (5, 6.5), RED, INK)
    wanted = np.zeros((8, 10), bool)
    wanted[3:7, 2:5] = True  # the last row by half, which is enough
    np.testing.assert_array_equal(sheet.label == classes.CAR, wanted)
    np.testing.assert_array_equal(sheet.looks == 1, wanted)
    np.testing.assert_allclose(sheet.image[0, 2:8, 3], [0, 1, 1, 1, 0.5, 0])
    assert not sheet.image[1:].any()


@pytest.mark.parametrize("turn", [1, -1])
def test_a_polygon_may_turn_either_way(turn):
    sheet = canvas.Canvas((20, 20))
    sheet.polygon([(4, 2), (16, 2), (12, 18), (8, 18)][::turn], RED, INK)
    middles = np.arange(20) + 0.5
    inset = np.where((middles > 2) & (middles < 18), (middles - 2) / 4, np.inf)[:, None]
    wanted = np.maximum(np.minimum(np.arange(20) + 1, 16 - inset) - np.maximum(np.arange(20), 4 + inset), 0)
    np.testing.assert_allclose(sheet.image[0], wanted, atol=1e-6)


def test_an_ellipse_has_its_area():
    sheet = canvas.Canvas((64, 64))
    sheet.ellipse((30, 33), (20, 12), RED, INK)
    assert (sheet.label == classes.CAR).sum() == pytest.approx(np.pi * 20 * 12, rel=0.02)


def test_brushes_stop_at_the_edge_and_shades_leave_the_label_alone():
    sheet = canvas.Canvas((16, 16))
    sheet.rectangle((-50, -50), (-1, -1), RED, INK)
    sheet.polygon([(20, 2), (40, 2), (30, 9)], RED, INK)
    sheet.ellipse((8, -30), (5, 5), RED, INK)
    sheet.glow((-9, 8), 5, RED)
    assert not sheet.image.any()
    sheet.ellipse((0, 0), (6, 6), RED)
    sheet.glow((16, 16), 6, RED)
    assert sheet.image[0, 0, 0] == 1
    assert sheet.image[0, 15, 15] > 0.5
    assert not sheet.label.any()


def test_a_later_brush_takes_the_look_away():
    sheet = canvas.Canvas((4, 4))
    sheet.rectangle((0, 0), (4, 4), RED, INK)
    sheet.rectangle((0, 0), (2, 4), RED, classes.Ink(classes.POLE))
    assert sheet.looks.sum(axis=0).tolist() == [0, 0, 4, 4]

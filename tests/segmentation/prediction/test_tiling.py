"""Tiles against the paper's rule, column by column, for every width."""

from itertools import pairwise

import pytest

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.prediction.predictor import tiles
from paper_tiles import deciding_tile, rectangles

WIDTHS = range(1, 2101)
TILINGS = ("none", "efficient", "optimized")


@pytest.mark.parametrize("tiling", TILINGS)
def test_kept_columns_partition_every_image(tiling):
    for width in WIDTHS:
        made = tiles(width, tiling)
        columns = [column for tile in made for column in range(tile.first, tile.last)]
        assert columns == list(range(width)), width
        for tile in made:
            assert 0 <= tile.left <= tile.first < tile.last <= tile.right <= width, (width, tile)


@pytest.mark.parametrize("tiling", TILINGS)
def test_each_column_is_decided_by_the_tile_that_the_paper_names(tiling):
    for width in (*range(1, 1100, 7), *range(195, 215), *range(1000, 1008), *range(2040, 2101)):
        expected = rectangles(width, tiling)
        made = tiles(width, tiling)
        assert [(tile.left, tile.right) for tile in made] == expected, width
        for number, tile in enumerate(made):
            for column in (tile.first, (tile.first + tile.last) // 2, tile.last - 1):
                assert deciding_tile(column, expected) == number, (width, column)


def test_efficient_tiles_are_five_of_a_size_side_by_side():
    for width in WIDTHS:
        made = tiles(width, "efficient")
        sizes = [tile.right - tile.left for tile in made]
        assert len(made) == min(width, 5)
        assert sum(sizes) == width
        assert max(sizes) - min(sizes) <= 1


def test_optimized_tiles_of_cityscapes():
    made = tiles(2048, "optimized")
    assert [(tile.left, tile.right) for tile in made] == [(0, 570), (370, 940), (740, 1310), (1110, 1680), (1478, 2048)]
    assert [(tile.first, tile.last) for tile in made] == [(0, 470), (470, 840), (840, 1210), (1210, 1579), (1579, 2048)]


def test_optimized_tiles_are_equal_and_overlap_by_200():
    for width in WIDTHS:
        made = tiles(width, "optimized")
        size = -(-(width + 800) // 5)
        assert {tile.right - tile.left for tile in made} == {min(size, width)}
        overlaps = [left.right - right.left for left, right in pairwise(made)]
        assert len(made) == 5 or width < 217, width
        assert all(overlap == 200 for overlap in overlaps[:-1]), width
        assert all(200 <= overlap <= 204 for overlap in overlaps), width  # rounding up moves the last tile left


def test_an_unknown_tiling_is_refused():
    with pytest.raises(UserError, match=r"one of none, efficient, optimized, got 'wide'"):
        tiles(100, "wide")

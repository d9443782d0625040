"""The walls of the street: house fronts with windows and shops, hedges behind fences, and house flanks.

Each image column meets the plane of the fronts at one distance. Behind it is the flank of the next house,
visible above lower roofs, over parks and in the mouths of side streets. Two layers of columns therefore
describe everything that varies along the street. The flanks are painted first, then the fronts over them.

Choices between two values are written as mask-weighted sums, because ``numpy.where`` is several times slower.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.data.kinds.streets.canvas import Color
from losspool.segmentation.data.kinds.streets.chance import Dice, Field, ridge, texture
from losspool.segmentation.data.kinds.streets.classes import BUILDING, FENCE, TREE
from losspool.segmentation.data.kinds.streets.street import Lot, Stage, Street

# The rows of a layer of columns: the first five depend on the column, the rest on its lot.
FAR, PLACE, PER_METRE, TOP, GAIN = range(5)
EAVES, BAY, STOREY, PANE_WIDE, PANE_HIGH, SHOP, LIT, SEED, PARK = range(5, 14)
WALL, ROOF, ACCENT = slice(14, 17), slice(17, 20), slice(20, 23)

LEAVES: Color = (0.20, 0.33, 0.13)
GLASS: Color = (0.13, 0.15, 0.18)
FRAME: Color = (0.80, 0.80, 0.78)
LAMPLIGHT: Color = (1.0, 0.80, 0.46)
SHOP_PANE = 0.88
"""Width of a shop window as a fraction of its bay."""
STRIPS = 4
"""Number of column strips painted separately; avoids computing sky and ground rows near the middle of the street."""
PIPE, PIPES = 0.13, 11.0
"""Width and spacing of the rain pipes: thin, upright and dark, but not poles."""


def paint_walls(stage: Stage, street: Street, dice: Dice) -> None:
    front, back = _layers(stage, street, dice)
    panes = dice.field(64)
    height = np.float32(stage.camera.height)
    overlooks = (back[TOP] - height) * front[FAR] > (front[TOP] - height) * back[FAR]
    step = -(-stage.canvas.width // STRIPS)
    for left in range(0, stage.canvas.width, step):
        strip = slice(left, left + step)
        if overlooks[strip].any():
            _paint_layer(stage, back[:, strip], left, panes)
        _paint_layer(stage, front[:, strip], left, panes)


def _paint_layer(stage: Stage, layer: Field, left: int, panes: Field) -> None:
    """Paint a layer (rows, columns) into the image, starting at column ``left``."""
    camera, light = stage.camera, stage.light
    peak = float(((layer[TOP] - np.float32(camera.height)) / layer[FAR]).max())
    top = max(int(camera.v0 - camera.focal * peak) - 1, 0)
    bottom = int(camera.v0 + camera.focal * camera.height / float(layer[FAR].min())) + 1
    sight = (camera.v0 - 0.5 - np.arange(top, min(bottom, stage.canvas.height))) / camera.focal  # slope upwards
    y = camera.height + sight.astype(np.float32)[:, None] * layer[FAR]  # (rows, columns): metres above the ground
    solid = (y >= 0) & (y < layer[TOP])

    rough = texture(layer[PLACE] * 17 + layer[SEED] * 37, y * 17)
    color = _house(stage, layer, y, rough, panes)
    label = np.full(y.shape, BUILDING, np.uint8)
    park = np.flatnonzero(layer[PARK])
    if len(park):
        green, fence = _hedge(layer[:, park], y[:, park], rough[:, park])
        color[:, :, park] = green * np.array(light.ambient, np.float32)[:, None, None]
        label[:, park] = np.where(fence, np.uint8(FENCE), np.uint8(TREE))
    air = layer[FAR] / (layer[FAR] + np.float32(light.reach))
    color *= 1 - air
    color += np.array(light.haze, np.float32)[:, None, None] * air
    window = slice(top, top + y.shape[0]), slice(left, left + y.shape[1])
    for channel in range(3):
        np.copyto(stage.canvas.image[(channel, *window)], color[channel], where=solid)
    np.copyto(stage.canvas.label[window], label, where=solid)


def _layers(stage: Stage, street: Street, dice: Dice) -> tuple[Field, Field]:
    """Return the column layers of the fronts, and of the flanks behind them."""
    camera, light = stage.camera, stage.light
    slope = (np.arange(stage.canvas.width) + 0.5 - camera.u0) / camera.focal
    sides = []
    for side, mine in enumerate((slope < 0, slope >= 0)):
        s, lots, wall = slope[mine], street.lots[side], abs(street.walls[side])
        far = np.minimum(wall / np.maximum(np.abs(s), 1e-4), street.end)
        which = np.searchsorted([lot.end for lot in lots[:-1]], far)
        which = np.where(far >= street.end, len(lots) - 1, which)
        table = np.array([_row(lot, seed) for seed, lot in enumerate(lots, start=40 * side)])

        front = table[which].T
        front[FAR], front[PLACE] = far, far + dice.uniform(0, 5)
        front[PER_METRE] = camera.focal * wall / (far * far)
        front[TOP] *= which < len(lots) - 1  # the closing lot faces the camera, so it is a flank
        front[GAIN] = light.shade if light.sun == (-1, 1)[side] else 1.08

        following = _following(lots)[which]
        back = table[following].T
        back[FAR] = np.array([lot.start for lot in lots])[following]
        back[PLACE] = s * back[FAR] + 200  # positive, so that truncation is floor
        back[PER_METRE] = camera.focal / back[FAR]
        back[GAIN] = 0.45 + 0.45 * light.shade
        sides.append((front, back))
    front, back = (np.concatenate(pair, axis=1).astype(np.float32) for pair in zip(*sides, strict=True))
    for layer in (front, back):
        bumps = 0.20 * ridge(layer[PLACE] * 0.9, layer[SEED]) + 0.07 * ridge(layer[PLACE] * 4, layer[SEED])
        layer[TOP] *= 1 + layer[PARK] * bumps
    return front, back


def _following(lots: tuple[Lot, ...]) -> NDArray[np.intp]:
    """Return for each lot the index of the next house behind it, or of the closing lot."""
    last = len(lots) - 1
    return np.array(
        [next((j for j in range(i + 1, last) if lots[j].kind == "house"), last) for i in range(len(lots))], np.intp
    )


def _row(lot: Lot, seed: int) -> list[float]:
    row = [0.0, 0.0, 0.0, lot.height, 1.0, lot.eaves, lot.bay, lot.storey, *lot.pane, float(lot.shop), lot.lit]
    return [*row, float(seed), float(lot.kind == "park"), *lot.wall, *lot.roof, *lot.accent]


def _house(stage: Stage, layer: Field, y: Field, rough: Field, panes: Field) -> Field:
    """Return colours (3, rows, columns): walls, roofs, windows with frames, shops with boards."""
    light = stage.light
    storey = y * (1 / layer[STOREY])
    floor = np.floor(storey)
    storey -= floor
    bay = layer[PLACE] / layer[BAY]
    place = np.floor(bay)
    shop = (floor == 0) * layer[SHOP]
    walled = (y < layer[EAVES] - 0.3).astype(np.float32)

    # Signed distance to the window edge in pixels, across and upwards; half a pixel inside is full coverage.
    across = (layer[PANE_WIDE] / 2 - np.abs(bay - place - 0.5)) * layer[BAY] * layer[PER_METRE] + 0.5
    across = across + shop * ((SHOP_PANE - layer[PANE_WIDE]) / 2 * layer[BAY] * layer[PER_METRE])
    per_metre = np.float32(stage.camera.focal) / layer[FAR]
    upwards = (layer[PANE_HIGH] / 2 - np.abs(storey - 0.52 + 0.10 * shop)) * (layer[STOREY] * per_metre) + 0.5
    pane = np.clip(across, 0, 1) * np.clip(upwards, 0, 1) * walled
    rim = np.minimum(0.13 * layer[PER_METRE], 3)
    frame = np.clip(across + rim, 0, 1) * np.clip(upwards + 0.13 * per_metre, 0, 1)
    frame *= walled * 0.45
    board = shop * (storey > 0.80)
    roof = 1 - walled
    pipe = layer[PLACE] / PIPES
    pipe = np.clip((PIPE / 2 - np.abs(pipe - np.floor(pipe) - 0.5) * PIPES) * layer[PER_METRE] + 0.5, 0, 1)

    drawn = panes.take((floor * 11 + (place * 5 + layer[SEED] * 23)).astype(np.int32) & 63)
    glint = 0.09 + 0.36 * drawn
    tone = (1 + 0.16 * rough) * (layer[GAIN] * (1 - 0.45 * pipe)) * np.minimum(0.86 + 0.05 * y, 1)
    surface = np.empty((3, *y.shape), np.float32)
    for color, wall, tiles, accent, ambient, haze, frame_color, glass in zip(
        surface, layer[WALL], layer[ROOF], layer[ACCENT], light.ambient, light.haze, FRAME, GLASS, strict=True
    ):
        np.multiply(roof, tiles - wall, out=color)
        color += wall
        color += (accent - color) * board
        color += (np.float32(frame_color) - color) * frame
        color += (glint * np.float32(haze / max(ambient, 0.3)) + glass - color) * pane
        color *= tone * np.float32(ambient)
    if light.night:
        burning = pane * (drawn < layer[LIT])
        for color, lamplight in zip(surface, LAMPLIGHT, strict=True):
            color += ((0.45 + 1.4 * drawn) * np.float32(lamplight) - color) * burning
    return surface


def _hedge(layer: Field, y: Field, rough: Field) -> tuple[Field, NDArray[np.bool_]]:
    """Return colours (3, rows, columns) of leaves behind fence bars and rails, and the fence mask."""
    fence = y < layer[EAVES]
    clumps = texture(layer[PLACE] * 4, y * 4)
    tone = (0.75 + 0.4 * rough + 0.3 * clumps + 0.3 * y / np.maximum(layer[TOP], 1)) * layer[GAIN]
    bar = layer[PLACE] / layer[BAY]
    off = np.abs(bar - np.floor(bar) - 0.5)
    bars = np.clip((0.16 - off) * layer[BAY] * layer[PER_METRE] + 0.5, 0, 1)
    rails = (np.abs(y - 0.2) < 0.07) | (np.abs(y - layer[EAVES] + 0.12) < 0.08)
    bars = np.maximum(bars, rails) * fence
    leaves = np.array(LEAVES, np.float32)[:, None, None] * tone
    return leaves + (layer[WALL, None] * layer[GAIN] - leaves) * bars, fence

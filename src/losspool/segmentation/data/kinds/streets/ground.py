"""The sky, and the ground below the horizon: the road with its markings, and two pavements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from losspool.segmentation.data.kinds.streets.canvas import Color
from losspool.segmentation.data.kinds.streets.chance import Dice, Field, Places, fractal_noise, texture
from losspool.segmentation.data.kinds.streets.classes import PAVEMENT, ROAD, SKY
from losspool.segmentation.data.kinds.streets.street import Lot, Stage, Street

PAINT: Color = (0.86, 0.86, 0.84)
LINE = 0.075
"""Half-width of a painted line, in metres."""
KERB = 0.22
HEADLIGHT: Color = (1.0, 0.93, 0.78)


def paint_sky(stage: Stage, dice: Dice) -> None:
    """Paint a gradient, and clouds by day."""
    canvas, light = stage.canvas, stage.light
    rows = min(int(stage.camera.v0) + 1, canvas.height)
    down = (np.arange(rows, dtype=np.float32) / stage.camera.v0)[:, None]
    cover = fractal_noise(dice, (rows, canvas.width), (4, 3), 4) * 0.9 - dice.uniform(-0.5, 0.6)
    cover = np.clip(cover, 0, 1) * (1.15 - down) * (0.12 if light.night else 0.85)
    bright = dice.uniform(0.85, 1.1)
    for channel in range(3):
        clear = light.zenith[channel] + (light.haze[channel] - light.zenith[channel]) * (down * down)
        cloud = (0.35 + 0.65 * light.haze[channel]) * bright
        canvas.image[channel, :rows] = clear + (cloud - clear) * cover
    canvas.label[:rows] = SKY


def paint_ground(stage: Stage, street: Street, dice: Dice) -> None:
    """Paint every pixel below the horizon; walls are painted over it later."""
    canvas, camera, light = stage.canvas, stage.camera, stage.light
    first = int(camera.v0) + 1
    z = camera.focal * camera.height / (np.arange(first, canvas.height) + 0.5 - camera.v0)  # (rows,)
    s = ((np.arange(canvas.width) + 0.5 - camera.u0) / camera.focal).astype(np.float32)
    far = z.astype(np.float32)[:, None]
    x = s * far  # (rows, W): metres across
    per_metre = np.float32(camera.focal) / far

    road = (x > street.kerbs[0]) & (x < street.kerbs[1])
    road |= _mouths(street.lots[0], z)[:, None] & (x < 0)
    road |= _mouths(street.lots[1], z)[:, None] & (x > 0)
    grain = texture(x * 21 + dice.whole(0, 255), far * 13 + dice.whole(0, 255))
    stains = texture(x * 1.7 + dice.whole(0, 255), far * 0.6 + dice.whole(0, 255))
    near = np.minimum(per_metre / np.float32(camera.focal) * 14, 1)  # fine grain fades with distance

    asphalt = dice.uniform(0.26, 0.42) * (1 + 0.14 * grain * near + 0.13 * stains)
    asphalt += (PAINT[0] - asphalt) * _markings(street, dice, x, far, per_metre) * (0.8 + 0.25 * stains)
    slabs = _slabs(dice, x, far, per_metre)
    paving = dice.uniform(0.46, 0.68) * (1 + 0.10 * grain * near + 0.08 * stains) * (1 - 0.16 * slabs)
    beyond = np.maximum(street.kerbs[0] - x, x - street.kerbs[1])
    paving += (0.78 - paving) * _inside(beyond, 0, KERB, per_metre) * 0.7
    tint = dice.uniform(-0.05, 0.06)
    gain = _shadows(stage, street, dice, x, z, per_metre)
    beam = _beam(x, far) if light.night else None
    air = far / (far + np.float32(light.reach))
    gray = paving + (asphalt - paving) * road
    warm = tint + (0.01 - tint) * road.astype(np.float32)
    for channel, shift in enumerate((1.0, 0.0, -1.0)):
        surface = gray * (1 + shift * warm) * light.ambient[channel] * gain
        if beam is not None:
            surface += gray * beam * HEADLIGHT[channel]
        canvas.image[channel, first:] = surface + (light.haze[channel] - surface) * air
    canvas.label[first:] = np.where(road, np.uint8(ROAD), np.uint8(PAVEMENT))


def _mouths(lots: tuple[Lot, ...], z: Places) -> NDArray[np.bool_]:
    """Return (rows,): where a side street opens."""
    opens = np.zeros(len(z), bool)
    for lot in lots:
        if lot.kind == "mouth":
            opens |= (z > lot.start) & (z < lot.end)
    return opens


def _inside(place: Field, low: float, high: float, per_metre: Field) -> Field:
    """Return one between two positions and zero outside, with a one-pixel ramp at the ends."""
    middle, half = (low + high) / 2, (high - low) / 2
    return np.clip((half - np.abs(place - middle)) * per_metre + 0.5, 0, 1)


def _markings(street: Street, dice: Dice, x: Field, far: Field, per_metre: Field) -> Field:
    """Return the paint mask: lane lines (dashed or solid), edge lines, zebra crossing."""
    left, right = street.kerbs
    lane = (x - left) * (street.lanes / (right - left))
    line = np.floor(lane + 0.5)
    off = np.abs(lane - line) * ((right - left) / street.lanes)
    paint = np.clip((LINE - off) * per_metre + 0.5, 0, 1) * ((line > 0) & (line < street.lanes))
    if dice.chance(0.75):
        along = far / dice.uniform(6, 10) + dice.uniform(0, 1)
        paint *= along - np.floor(along) < dice.uniform(0.35, 0.6)
    if dice.chance(0.4):
        inset = np.minimum(x - left, right - x)
        paint = np.maximum(paint, _inside(inset, 0.3, 0.3 + 2 * LINE, per_metre))
    if street.crossing:
        bars = np.abs((x - left) - np.floor(x - left) - 0.5)
        zebra = np.clip((0.25 - bars) * per_metre + 0.5, 0, 1)
        across = (far > street.crossing) & (far < street.crossing + 3)
        paint = np.where(across, zebra, paint)
    fade = np.minimum(per_metre * (2.2 * LINE), 1)  # a line thinner than a pixel is faint
    return paint * fade * dice.uniform(0.55, 1.0)


def _slabs(dice: Dice, x: Field, far: Field, per_metre: Field) -> Field:
    """Return the mask of joints between paving slabs."""
    size = dice.uniform(0.6, 1.2)
    joints = np.zeros_like(x)
    for place, sharp in ((x / size, per_metre), (far / size, per_metre * per_metre * 0.01)):
        off = np.abs(place - np.floor(place) - 0.5)
        joints = np.maximum(joints, np.clip((off - 0.47) * size * sharp + 0.3, 0, 1))
    return joints * np.minimum(per_metre * 0.05, 1)


def _shadows(stage: Stage, street: Street, dice: Dice, x: Field, z: Places, per_metre: Field) -> Field:
    """Return the fraction of sunlight that reaches the ground past the houses on the sun's side."""
    slope, light = dice.uniform(0.1, 0.75), stage.light
    side = 1 if light.sun > 0 else 0
    lots = street.lots[side]
    which = np.clip(np.searchsorted([lot.end for lot in lots], z), 0, len(lots) - 1)
    lengths = np.array([lot.height * slope for lot in lots])[which]
    edge = (abs(street.walls[side]) - lengths).astype(np.float32)[:, None]
    cover = np.clip((x * light.sun - edge) * per_metre * 0.4 + 0.5, 0, 1)
    return 1 - (1 - light.shade) * cover


def _beam(x: Field, far: Field) -> Field:
    """Return the headlight of the camera's own car on the ground ahead."""
    spread = x / (1.6 + 0.3 * far)
    reach = far / 11
    return 0.75 * np.maximum(1 - spread * spread, 0) / (1 + reach * reach)

"""The layout of a street: camera, kerbs, pavements, and the lots along them."""

from __future__ import annotations

from dataclasses import dataclass

from losspool.segmentation.data.kinds.streets.canvas import Canvas, Color, Point
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.light import Light

WALLS: tuple[Color, ...] = (
    (0.56, 0.30, 0.23),  # brick
    (0.64, 0.40, 0.30),
    (0.76, 0.66, 0.50),  # sandstone
    (0.82, 0.77, 0.66),
    (0.60, 0.58, 0.55),  # concrete
    (0.44, 0.44, 0.46),
    (0.86, 0.84, 0.80),  # plaster
    (0.80, 0.68, 0.62),
    (0.62, 0.70, 0.66),
    (0.52, 0.58, 0.66),
    (0.48, 0.40, 0.34),
)
ROOFS: tuple[Color, ...] = ((0.28, 0.28, 0.31), (0.46, 0.25, 0.20), (0.36, 0.33, 0.30))
ACCENTS: tuple[Color, ...] = (  # awnings and shop boards: deliberately the colours of signs
    (0.72, 0.14, 0.14),
    (0.12, 0.30, 0.62),
    (0.90, 0.74, 0.18),
    (0.14, 0.40, 0.26),
    (0.88, 0.86, 0.82),
    (0.22, 0.20, 0.22),
)


@dataclass(frozen=True)
class Camera:
    """A pinhole camera looking along the street: x right, y up from the ground, z ahead, in metres."""

    focal: float
    u0: float
    v0: float
    """The vanishing point, in pixels."""
    height: float

    def at(self, x: float, y: float, z: float) -> Point:
        return self.u0 + self.focal * x / z, self.v0 + self.focal * (self.height - y) / z


@dataclass(frozen=True)
class Lot:
    """A section of one side: a house, a park behind a fence, or the mouth of a side street."""

    kind: str
    start: float
    end: float
    height: float = 0.0
    """Height of the house up to the roof ridge, or of the park's hedge."""
    eaves: float = 0.0
    wall: Color = (0, 0, 0)
    roof: Color = (0, 0, 0)
    accent: Color = (0, 0, 0)
    bay: float = 3.0
    """Distance between windows, or between the bars of a fence."""
    storey: float = 3.2
    pane: Point = (0.5, 0.5)
    """Size of a window as a fraction of the bay and of the storey."""
    shop: bool = False
    lit: float = 0.0
    """Fraction of windows lit at night."""


@dataclass(frozen=True)
class Street:
    """A street. Positions across are metres from the camera axis, negative on the left."""

    kerbs: Point
    walls: Point
    end: float
    """Distance at which a house or trees close the street."""
    lots: tuple[tuple[Lot, ...], tuple[Lot, ...]]
    """Lots of the left and right side, from near to far; the last one closes the street."""
    crossing: float
    """Distance of the zebra crossing; 0 for none."""
    lights: float
    """Distance of the traffic lights, which stand at the crossing if there is one; 0 for none."""
    lanes: int

    def open_at(self, side: int, z: float) -> bool:
        """Return whether a side street opens there. Nothing stands on the pavement in that case."""
        return any(lot.kind == "mouth" and lot.start < z < lot.end for lot in self.lots[side])


@dataclass(frozen=True)
class Stage:
    """Everything an object needs to draw itself."""

    canvas: Canvas
    camera: Camera
    light: Light


def draw_camera(dice: Dice, size: tuple[int, int], focal: float) -> Camera:
    height, width = size
    return Camera(
        focal=height * dice.uniform(0.90, 1.15) * focal,
        u0=width * 0.5 + min(height, width) * dice.uniform(-0.13, 0.13),
        v0=height * dice.uniform(0.44, 0.54),
        height=dice.uniform(1.8, 2.3),
    )


def draw_street(dice: Dice) -> Street:
    lanes = dice.pick((2, 2, 2, 3, 4))
    width = lanes * dice.uniform(2.8, 3.3) + dice.uniform(0.5, 2.0)
    right = width * dice.uniform(0.3, 0.46) if lanes < 4 else width * dice.uniform(0.28, 0.4)
    kerbs = (right - width, right)
    walls = (kerbs[0] - dice.uniform(2.4, 4.6), kerbs[1] + dice.uniform(2.4, 4.6))
    end = dice.uniform(45, 130)
    closing = _closing(dice, end)
    tall = dice.uniform(10, 20)
    lots = (_side(dice, end, tall, closing), _side(dice, end, tall, closing))
    crossing = dice.uniform(7, 22) if dice.chance(0.25) else 0.0
    lights = (crossing or dice.uniform(8, 22)) if dice.chance(0.38) else 0.0
    return Street(kerbs, walls, end, lots, crossing, lights, lanes)


def _side(dice: Dice, end: float, tall: float, closing: Lot) -> tuple[Lot, ...]:
    lots: list[Lot] = []
    at = -dice.uniform(0, 10)
    while at < end:
        after_house = bool(lots) and lots[-1].kind == "house"
        draw = dice.uniform(0, 1)
        if draw < 0.13 and after_house:
            lots.append(Lot("mouth", at, at + dice.uniform(5, 9)))
        elif draw < 0.26:
            lots.append(_park(dice, at))
        else:
            lots.append(_house(dice, at, at + dice.uniform(7, 19), tall * dice.uniform(0.7, 1.6)))
        at = lots[-1].end
    return (*lots, closing)


def _house(dice: Dice, start: float, end: float, height: float) -> Lot:
    r, g, b = dice.pick(WALLS)
    tone = dice.uniform(0.85, 1.12)
    return Lot(
        "house",
        start,
        end,
        height=height,
        eaves=height - (dice.uniform(1.2, 2.6) if dice.chance(0.45) else 0.35),
        wall=(r * tone, g * tone, b * tone),
        roof=dice.pick(ROOFS),
        accent=dice.pick(ACCENTS),
        bay=dice.uniform(1.9, 3.6),
        storey=dice.uniform(2.8, 3.7),
        pane=(dice.uniform(0.32, 0.62), dice.uniform(0.42, 0.64)),
        shop=dice.chance(0.5),
        lit=dice.uniform(0.1, 0.5),
    )


def _park(dice: Dice, start: float) -> Lot:
    return Lot(
        "park",
        start,
        start + dice.uniform(8, 20),
        height=dice.uniform(2.2, 6.0),
        eaves=dice.uniform(1.0, 1.7),  # the fence's height
        wall=dice.pick(((0.20, 0.21, 0.20), (0.50, 0.40, 0.28), (0.70, 0.70, 0.68), (0.24, 0.32, 0.26))),
        bay=dice.uniform(0.22, 0.5),
    )


def _closing(dice: Dice, end: float) -> Lot:
    if dice.chance(0.55):
        return _house(dice, end, end + 20, dice.uniform(9, 22))
    return Lot("park", end, end + 20, height=dice.uniform(6, 12))

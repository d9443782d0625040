"""Pedestrians, made of a few parts, in common or rare clothes."""

from __future__ import annotations

from dataclasses import dataclass

from losspool.segmentation.data.kinds.streets.canvas import Color, Point
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.classes import PEDESTRIAN, Ink, look_of
from losspool.segmentation.data.kinds.streets.street import Stage

Clothes = tuple[Color, Color]

COMMON_TOPS: tuple[Color, ...] = (
    (0.07, 0.07, 0.09),
    (0.12, 0.15, 0.26),
    (0.22, 0.23, 0.26),
    (0.18, 0.26, 0.42),
    (0.32, 0.12, 0.14),
)
COMMON_LEGS: tuple[Color, ...] = ((0.08, 0.08, 0.10), (0.16, 0.21, 0.34), (0.24, 0.24, 0.27))
RARE: tuple[Clothes, ...] = (  # colours of walls and leaves, which a network learns as background
    ((0.62, 0.36, 0.27), (0.70, 0.60, 0.46)),
    ((0.78, 0.70, 0.56), (0.66, 0.58, 0.46)),
    ((0.26, 0.38, 0.18), (0.34, 0.33, 0.22)),
    ((0.82, 0.80, 0.76), (0.62, 0.60, 0.57)),
)
SKIN: tuple[Color, ...] = ((0.86, 0.66, 0.54), (0.66, 0.46, 0.34), (0.38, 0.26, 0.19))
HAIR: tuple[Color, ...] = ((0.08, 0.06, 0.05), (0.26, 0.17, 0.10), (0.58, 0.46, 0.28), (0.55, 0.55, 0.55))
SHOES: Color = (0.08, 0.07, 0.07)
SHADOW: Color = (0.02, 0.02, 0.03)
SMALL = 18.0
"""People with fewer pixels in height are drawn without arms, face and shoes."""
THIN = 0.55
"""Minimum half-width of a limb in pixels; distant limbs would vanish otherwise."""


@dataclass(frozen=True)
class Person:
    x: float
    z: float
    height: float
    ink: Ink
    clothes: Clothes
    skin: Color
    hair: Color
    stride: float
    """Distance of the feet from the body axis, as a fraction of the height."""
    coat: float
    """Lower edge of the upper garment, as a fraction of the height."""
    bag: Color | None

    def draw(self, stage: Stage) -> None:
        u, ground = stage.camera.at(self.x, 0, self.z)
        tall = stage.camera.focal * self.height / self.z
        stage.canvas.ellipse((u, ground), (0.2 * tall, 0.035 * tall), SHADOW, opacity=0.5)
        self._legs(stage, tall)
        self._trunk(stage, tall)
        self._head(stage, tall)

    def _at(self, stage: Stage, tall: float, x: float, y: float) -> Point:
        """Return the pixel position of a point on the body, given in fractions of its height from between the feet."""
        u, ground = stage.camera.at(self.x, 0, self.z)
        return u + x * tall, ground - y * tall

    def _limb(self, stage: Stage, tall: float, start: Point, end: Point, half: float, color: Color) -> None:
        wide = max(half * tall, THIN)
        (a, b), (c, d) = self._at(stage, tall, *start), self._at(stage, tall, *end)
        stage.canvas.polygon(((a - wide, b), (a + wide, b), (c + wide, d), (c - wide, d)), color, self.ink)

    def _legs(self, stage: Stage, tall: float) -> None:
        for side, gain in ((-1, 0.8), (1, 0.95)):
            hip, foot = side * 0.045, side * self.stride
            color = stage.light.on(self.clothes[1], self.z, gain)
            self._limb(stage, tall, (hip, 0.50), (foot, 0.0), 0.045, color)
            if tall > SMALL:
                toe, heel = self._at(stage, tall, foot - 0.05, 0.03), self._at(stage, tall, foot + 0.07, 0.0)
                stage.canvas.rectangle(toe, heel, stage.light.on(SHOES, self.z), self.ink)

    def _trunk(self, stage: Stage, tall: float) -> None:
        top, dark = stage.light.on(self.clothes[0], self.z), stage.light.on(self.clothes[0], self.z, 0.75)
        outline = ((-0.075, 0.84), (0.075, 0.84), (0.125, 0.79), (0.10, self.coat), (-0.10, self.coat), (-0.125, 0.79))
        stage.canvas.polygon([self._at(stage, tall, x, y) for x, y in outline], top, self.ink, foot=dark)
        if tall > SMALL:
            for side in (-1, 1):
                hand = side * (0.135 + self.stride / 3)
                self._limb(stage, tall, (side * 0.115, 0.78), (hand, 0.46), 0.028, dark)
        if self.bag is not None:
            low, high = self._at(stage, tall, 0.10, 0.56), self._at(stage, tall, 0.21, 0.40)
            stage.canvas.rectangle(low, high, stage.light.on(self.bag, self.z), self.ink)

    def _head(self, stage: Stage, tall: float) -> None:
        hair, skin = stage.light.on(self.hair, self.z), stage.light.on(self.skin, self.z)
        radii = max(0.052 * tall, THIN), max(0.075 * tall, THIN)
        stage.canvas.ellipse(self._at(stage, tall, 0, 0.92), radii, hair, self.ink)
        if tall > SMALL:
            face = self._at(stage, tall, 0.008, 0.898)
            stage.canvas.ellipse(face, (0.042 * tall, 0.055 * tall), skin, self.ink)


def draw_person(dice: Dice, x: float, z: float) -> Person:
    look, ink = look_of(PEDESTRIAN, "rare")
    rare = dice.chance(look.share)
    clothes = dice.pick(RARE) if rare else (dice.pick(COMMON_TOPS), dice.pick(COMMON_LEGS))
    return Person(
        x,
        z,
        height=dice.uniform(1.15, 1.45) if dice.chance(0.12) else dice.uniform(1.6, 1.88),
        ink=ink if rare else look_of(PEDESTRIAN, "common")[1],
        clothes=clothes,
        skin=dice.pick(SKIN),
        hair=dice.pick(HAIR),
        stride=dice.uniform(0.02, 0.13),
        coat=dice.pick((0.30, 0.45, 0.47, 0.48)),
        bag=clothes[1] if dice.chance(0.25) else None,
    )

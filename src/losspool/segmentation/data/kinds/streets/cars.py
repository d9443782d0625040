"""Cars: boxes in perspective with a cabin, seen from one end and one side."""

from __future__ import annotations

from dataclasses import dataclass

from losspool.segmentation.data.kinds.streets.canvas import Color, Point, scaled
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.classes import CAR, look_of
from losspool.segmentation.data.kinds.streets.street import Stage

BODIES: tuple[Color, ...] = (
    (0.86, 0.87, 0.88),
    (0.62, 0.64, 0.66),
    (0.34, 0.36, 0.39),
    (0.12, 0.12, 0.14),
    (0.10, 0.12, 0.16),
    (0.16, 0.26, 0.48),
    (0.28, 0.46, 0.62),
    (0.60, 0.11, 0.11),
    (0.18, 0.30, 0.22),
    (0.66, 0.58, 0.44),
    (0.88, 0.70, 0.14),
)
TYRE: Color = (0.07, 0.07, 0.08)
RIM: Color = (0.50, 0.51, 0.53)
PANE: Color = (0.10, 0.13, 0.16)
SHADOW: Color = (0.02, 0.02, 0.03)
TAIL: Color = (0.75, 0.06, 0.05)
HEAD: Color = (1.0, 0.96, 0.86)
PLATE: Color = (0.84, 0.84, 0.78)
SHADOWS = ((0.30, 0.35), (0.05, 0.55))
"""Reach beyond the car in metres, and opacity, of each shadow: a soft one around a hard one."""
INSET = 0.17
"""Inset of the roof relative to the body on each side, in metres."""
SMALL = 11.0
"""Cars with fewer pixels in height are drawn without details."""
DAY, NIGHT = look_of(CAR, "day")[1], look_of(CAR, "night")[1]


@dataclass(frozen=True)
class Car:
    """A car, in metres. ``deck`` and ``slant``: lengths of boot or bonnet and of the slanted pane, near and far."""

    x: float
    """Position of the left side."""
    z: float
    """Distance of the near end."""
    width: float
    length: float
    roof: float
    deck: Point
    slant: Point
    body: Color
    facing: bool
    """Whether the front faces the camera."""
    moving: bool
    """Whether its lamps are on at night."""

    def draw(self, stage: Stage) -> None:
        small = stage.camera.focal * self.roof / self.z < SMALL
        self._shadow(stage)
        self._side(stage, small)
        self._near_end(stage, small)

    def _tone(self, stage: Stage, color: Color, gain: float = 1.0) -> Color:
        return stage.light.on(color, self.z, gain)

    def _shadow(self, stage: Stage) -> None:
        at, x, z = stage.camera.at, self.x, self.z
        for grow, opacity in SHADOWS:
            low, high, near, far = x - grow, x + self.width + grow, z - grow, z + self.length
            corners = (at(low, 0, near), at(high, 0, near), at(high, 0, far), at(low, 0, far))
            stage.canvas.polygon(corners, self._tone(stage, SHADOW), opacity=opacity)

    def _side(self, stage: Stage, small: bool) -> None:
        """Draw the visible flank, if any: body, cabin, panes, wheels."""
        if self.x > 0.05:
            plane, inwards = self.x, INSET
        elif self.x + self.width < -0.05:
            plane, inwards = self.x + self.width, -INSET
        else:
            return
        canvas, at, z, end = stage.canvas, stage.camera.at, self.z, self.z + self.length
        ink = NIGHT if stage.light.night else DAY
        sunny = (stage.light.sun > 0) == (plane < 0)
        gain = 1.0 if sunny else 0.45 + 0.4 * stage.light.shade
        belt, sill = self.roof * 0.62, 0.26
        near_deck, far_deck = z + self.deck[0], end - self.deck[1]
        near_roof, far_roof = near_deck + self.slant[0], far_deck - self.slant[1]

        # The cabin extends into the body, which is painted over it, so there is no gap between them.
        cabin = [at(plane, belt * 0.85, near_deck), at(plane, belt, near_deck)]
        cabin += [at(plane + inwards, self.roof, near_roof), at(plane + inwards, self.roof, far_roof)]
        cabin += [at(plane, belt * 0.95, far_deck), at(plane, belt * 0.85, far_deck)]
        canvas.polygon(cabin, self._tone(stage, self.body, gain * 1.05), ink)
        outline = ((z, sill), (z, belt), (end - 0.1, belt * 0.93), (end, belt * 0.6), (end - 0.15, sill))
        color, foot = (self._tone(stage, self.body, share * gain) for share in (1.0, 0.6))
        canvas.polygon([at(plane, y, a) for a, y in outline], color, ink, foot=foot)
        top, low, slip = belt + (self.roof - belt) * 0.84, belt + 0.04, inwards * 0.84
        middle = (near_roof + far_roof) / 2
        for first, last in ((near_roof - 0.1, middle - 0.05), (middle + 0.05, far_roof + 0.1)):
            lean = 0.25 * (self.slant[1] if last > middle else -self.slant[0])
            pane = [at(plane, low, first + min(lean, 0)), at(plane + slip, top, first)]
            pane += [at(plane + slip, top, last), at(plane, low, last + max(lean, 0))]
            canvas.polygon(pane, self._tone(stage, PANE), ink, foot=self._tone(stage, PANE, 2.2))
            if small:
                break
        for hub in (z + 0.75, end - 0.85):
            self._wheel(stage, plane, hub, small)

    def _wheel(self, stage: Stage, plane: float, hub: float, small: bool) -> None:
        """Draw a wheel as an ellipse, foreshortened along the street."""
        ink = NIGHT if stage.light.night else DAY
        (u, v), (u_near, _) = stage.camera.at(plane, 0.32, hub), stage.camera.at(plane, 0.32, hub - 0.32)
        wide, high = max(abs(u_near - u), 0.5), stage.camera.focal * 0.33 / hub
        stage.canvas.ellipse((u, v), (wide, high), self._tone(stage, TYRE), ink)
        if not small:
            stage.canvas.ellipse((u, v), (wide * 0.55, high * 0.55), self._tone(stage, RIM), ink)

    def _near_end(self, stage: Stage, small: bool) -> None:
        """Draw the tail or front, from the wheels up to the roof."""
        canvas, at, z = stage.canvas, stage.camera.at, self.z
        ink = NIGHT if stage.light.night else DAY
        low, high, belt = self.x, self.x + self.width, self.roof * 0.62
        pane_z, roof_z = z + self.deck[0], z + self.deck[0] + self.slant[0]
        far_z = z + self.length - self.deck[1] - self.slant[1]

        def across(y: float, inset: float, depth: float) -> tuple[Point, Point]:
            return at(low + inset, y, depth), at(high - inset, y, depth)

        def between(under: tuple[Point, Point], over: tuple[Point, Point], color: Color, gain: float) -> None:
            foot = self._tone(stage, color, gain * 0.8)
            canvas.polygon((*under, *over[::-1]), self._tone(stage, color, gain), ink, foot=foot)

        if not small:
            for wheel in (low + 0.08, high - 0.33):
                canvas.rectangle(at(wheel, 0.45, z + 0.2), at(wheel + 0.25, 0.0, z + 0.2), self._tone(stage, TYRE), ink)
        if stage.camera.height > self.roof:
            between(across(self.roof, INSET, roof_z), across(self.roof, INSET, far_z), self.body, 1.15)
        between(across(belt, 0.0, pane_z), across(self.roof, INSET, roof_z), self.body, 0.95)
        glass_low, glass_high = belt + 0.05, self.roof - 0.07
        slant = self.slant[0] / (self.roof - belt)
        between(
            across(glass_low, 0.12, pane_z + 0.05 * slant),
            across(glass_high, INSET + 0.08, roof_z - 0.07 * slant),
            PANE,
            2.4 if stage.light.shade < 1 else 1.6,
        )
        between(across(belt * 0.97, 0.0, z), across(belt, 0.0, pane_z), self.body, 1.1)  # boot lid or bonnet
        between(across(0.24, 0.02, z), across(belt * 0.5, 0.0, z), self.body, 0.72)
        between(across(belt * 0.5, 0.0, z), across(belt * 0.97, 0.0, z), self.body, 0.92)
        self._lamps(stage, small)

    def _lamps(self, stage: Stage, small: bool) -> None:
        canvas, at, z, belt = stage.canvas, stage.camera.at, self.z, self.roof * 0.62
        ink = NIGHT if stage.light.night else DAY
        burning = stage.light.night and self.moving
        raw = HEAD if self.facing else TAIL
        color = raw if burning else self._tone(stage, raw, 0.95)
        for left in (self.x + 0.06, self.x + self.width - 0.38):
            canvas.rectangle(at(left, belt * 0.86, z), at(left + 0.32, belt * 0.66, z), color, ink)
            if burning:
                center, scale = at(left + 0.16, belt * 0.76, z), stage.camera.focal / z
                strength = 0.6 if self.facing else 0.5
                canvas.glow(center, (1.2 if self.facing else 0.8) * scale, scaled(raw, strength))
        if small:
            return
        middle = self.x + self.width / 2
        canvas.rectangle(
            at(middle - 0.26, belt * 0.55, z), at(middle + 0.26, belt * 0.40, z), self._tone(stage, PLATE, 0.9), ink
        )
        low, high = at(self.x + 0.04, 0.34, z), at(self.x + self.width - 0.04, 0.24, z)
        canvas.rectangle(low, high, self._tone(stage, TYRE, 1.6), ink)


def draw_car(dice: Dice, middle: float, z: float, *, facing: bool, moving: bool) -> Car:
    """Draw a random hatchback, saloon or van, centred at ``middle`` across the street."""
    r, g, b = dice.pick(BODIES)
    tone = dice.uniform(0.9, 1.1)
    kind = dice.pick(("hatch", "hatch", "saloon", "saloon", "van"))
    width = dice.uniform(1.68, 1.86)
    if kind == "van":
        length, roof, width = dice.uniform(4.4, 5.2), dice.uniform(1.85, 2.2), width + 0.12
        deck, slant = (0.0, 0.7), (0.12, 0.6)
    elif kind == "saloon":
        length, roof = dice.uniform(4.3, 4.8), dice.uniform(1.40, 1.48)
        deck, slant = (0.55, 1.1), (0.6, 0.7)
    else:
        length, roof = dice.uniform(3.6, 4.2), dice.uniform(1.46, 1.56)
        deck, slant = (0.05, 0.95), (0.4, 0.65)
    if facing:
        deck, slant = deck[::-1], slant[::-1]
    body = (r * tone, g * tone, b * tone)
    return Car(middle - width / 2, z, width, length, roof, deck, slant, body, facing, moving)

"""Time of day and weather of a scene, and the camera sensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from losspool.segmentation.data.kinds.streets.canvas import Canvas, Color
from losspool.segmentation.data.kinds.streets.chance import Dice, Field, smooth_noise, surface
from losspool.segmentation.data.kinds.streets.classes import CAR, look_of
from losspool.segmentation.data.protocol import Pixels


@dataclass(frozen=True)
class Light:
    """Ambient light, which multiplies every colour, and haze, which distance adds."""

    name: str
    ambient: Color
    zenith: Color
    """The sky's colour at the top of the image."""
    haze: Color
    """The sky's colour at the horizon, to which distant objects fade."""
    reach: float
    """The distance in metres at which half of a colour is haze."""
    shade: float
    """Fraction of ambient light in shadow; 1 without sun."""
    noise: float
    """Half-width of the sensor noise."""
    sun: int = 1
    """Side from which the sun shines: -1 left, 1 right."""

    @property
    def night(self) -> bool:
        return self.name == "night"

    def on(self, color: Color, distance: float, gain: float = 1.0) -> Color:
        """Return the colour of a surface as seen from ``distance``."""
        air = distance / (distance + self.reach)
        r, g, b = (c * a * gain * (1 - air) + h * air for c, a, h in zip(color, self.ambient, self.haze, strict=True))
        return r, g, b


NIGHT = Light("night", (0.33, 0.33, 0.42), (0.05, 0.06, 0.13), (0.21, 0.18, 0.23), 150, 1.0, 0.06)
DAYS = (  # cumulative share, light
    (0.50, Light("sun", (1.02, 0.99, 0.93), (0.25, 0.47, 0.78), (0.76, 0.85, 0.93), 380, 0.52, 0.025)),
    (0.82, Light("overcast", (0.80, 0.83, 0.87), (0.62, 0.66, 0.72), (0.82, 0.84, 0.86), 170, 1.0, 0.03)),
    (1.00, Light("dusk", (0.86, 0.68, 0.60), (0.34, 0.35, 0.55), (0.96, 0.70, 0.50), 230, 0.72, 0.035)),
)
"""Daylight conditions, with cumulative shares of the daytime scenes."""


def draw_light(dice: Dice) -> Light:
    """Draw a light. Night is as frequent as the night look of cars."""
    night = dice.chance(look_of(CAR, "night")[0].share)
    at = dice.uniform(0, 1)
    base = NIGHT if night else next(light for share, light in DAYS if at < share)
    gain, cast = dice.uniform(0.82, 1.12), dice.uniform(-0.05, 0.05)
    r, g, b = base.ambient
    return Light(
        base.name,
        (r * gain * (1 + cast), g * gain, b * gain * (1 - cast)),
        base.zenith,
        base.haze,
        base.reach * dice.uniform(0.5, 1.4),
        base.shade + (1 - base.shade) * dice.uniform(0, 0.35),
        base.noise * dice.uniform(0.6, 1.4),
        dice.pick((-1, 1)),
    )


def expose(canvas: Canvas, light: Light, dice: Dice) -> Pixels:
    """(3, H, W) -> (H, W, 3): apply uneven light and surface grain, lens blur and sensor noise."""
    size = (canvas.height, canvas.width)
    image = canvas.image
    image *= 1 + 0.10 * smooth_noise(dice, size, (2, 2)) + 0.05 * surface(dice, size)
    _soften(image, dice.uniform(0.04, 0.17))
    noise = dice.grain(*size) * light.noise
    picture = np.empty((*size, 3), np.uint8)
    # The channels share the noise. Each adds half as much of its own: the same noise, mirrored.
    for channel, own in enumerate((noise[::-1], noise[:, ::-1], noise[::-1, ::-1])):
        plane = image[channel] + noise
        plane += 0.5 * own
        plane *= 255
        plane += 0.5
        picture[..., channel] = np.clip(plane, 0, 255, out=plane)
    return picture


def _soften(image: Field, side: float) -> None:
    """Blur in place: each pixel gives a fraction ``side`` to each neighbour, along both axes."""
    for before, after in ((image[:, :-1], image[:, 1:]), (image[:, :, :-1], image[:, :, 1:])):
        flow = after - before
        flow *= side
        before += flow
        after -= flow

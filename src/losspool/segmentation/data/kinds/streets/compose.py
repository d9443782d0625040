"""Compose a scene from its seed, split and index."""

from __future__ import annotations

from typing import NamedTuple

from losspool.segmentation.data.kinds.streets.canvas import Canvas, mix
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.classes import VOID
from losspool.segmentation.data.kinds.streets.ground import paint_ground, paint_sky
from losspool.segmentation.data.kinds.streets.light import draw_light, expose
from losspool.segmentation.data.kinds.streets.street import Stage, draw_camera, draw_street
from losspool.segmentation.data.kinds.streets.things import draw_things
from losspool.segmentation.data.kinds.streets.walls import paint_walls
from losspool.segmentation.data.protocol import Pixels

VERSION = 1
"""Generator version. Increment it with any change that alters a scene, so that stale caches are rebuilt."""
HOODS = 0.45
"""Probability that the bonnet of the camera's own car is visible."""


class Scene(NamedTuple):
    """An RGB image (H, W, 3), and label and look maps (H, W); read-only."""

    image: Pixels
    label: Pixels
    looks: Pixels


def scene(seed: int, split: str, index: int, size: tuple[int, int], focal: float = 1.0) -> Scene:
    """Draw a scene, ``focal`` times as large as usual.

    The result depends only on the arguments and is the same on every machine.
    """
    dice = Dice("streets", seed, split, index)
    stage = Stage(Canvas(size), draw_camera(dice.fork("camera"), size, focal), draw_light(dice.fork("light")))
    street = draw_street(dice.fork("street"))
    paint_sky(stage, dice.fork("sky"))
    paint_ground(stage, street, dice.fork("ground"))
    paint_walls(stage, street, dice.fork("walls"))
    for thing in draw_things(dice.fork("things"), street):
        thing.draw(stage)
    _hood(stage, dice.fork("hood"))
    image = expose(stage.canvas, stage.light, dice.fork("sensor"))
    drawn = Scene(image, stage.canvas.label.copy(), stage.canvas.looks.copy())
    for pixels in drawn:
        pixels.setflags(write=False)  # the dataset returns cached scenes without copying
    return drawn


def _hood(stage: Stage, dice: Dice) -> None:
    """Draw the bonnet of the camera's own car in some scenes, labelled void."""
    if not dice.chance(HOODS):
        return
    canvas, light = stage.canvas, stage.light
    middle, high = canvas.width * dice.uniform(0.45, 0.55), canvas.height * dice.uniform(0.03, 0.08)
    tone = dice.uniform(0.08, 0.45)
    color = light.on((tone, tone, tone * 1.05), 0.0)
    shine = mix(color, light.haze, 0.35)
    canvas.ellipse((middle, canvas.height), (canvas.width * 0.62, high), shine, VOID, foot=color)

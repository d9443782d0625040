"""Street trees: a trunk that resembles a pole, and a crown with holes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from losspool.segmentation.data.kinds.streets.canvas import Color, scaled
from losspool.segmentation.data.kinds.streets.chance import Dice, Field, between, tile
from losspool.segmentation.data.kinds.streets.classes import TREE, Ink
from losspool.segmentation.data.kinds.streets.street import Stage

LEAVES: tuple[Color, ...] = (
    (0.22, 0.36, 0.14),
    (0.16, 0.30, 0.16),
    (0.34, 0.42, 0.16),
    (0.27, 0.38, 0.24),
    (0.52, 0.36, 0.13),  # autumn
)
BARK: tuple[Color, ...] = ((0.26, 0.20, 0.15), (0.36, 0.33, 0.29), (0.20, 0.17, 0.15))
REACH = 1.35
"""Maximum extent of the leaves, in radii of the crown."""


@dataclass(frozen=True)
class Tree:
    x: float
    z: float
    trunk: float
    """The height at which the crown begins, in metres."""
    radii: tuple[float, float]
    leaves: Color
    bark: Color
    shift: float
    """Offset of the crown in the repeating texture."""

    def draw(self, stage: Stage) -> None:
        canvas, camera, light = stage.canvas, stage.camera, stage.light
        scale = camera.focal / self.z
        u, foot = camera.at(self.x, 0, self.z)
        half, top = max(0.13 * scale, 0.5), foot - (self.trunk + self.radii[1] * 0.6) * scale
        canvas.ellipse((u, foot), (self.radii[0] * scale, 0.16 * scale), (0.02, 0.02, 0.03), opacity=1 - light.shade)
        bark, dark = light.on(self.bark, self.z, 1.1), light.on(self.bark, self.z, 0.7)
        trunk = ((u - half, foot), (u + half, foot), (u + half * 0.6, top), (u - half * 0.6, top))
        canvas.polygon(trunk, dark, Ink(TREE), foot=bark)
        self._crown(stage, u, foot - (self.trunk + self.radii[1]) * scale, scale)

    def _crown(self, stage: Stage, u: float, v: float, scale: float) -> None:
        """Draw an ellipse whose outline bulges with clumps of leaves and frays with twigs."""
        canvas, light = stage.canvas, stage.light
        wide, high = self.radii[0] * scale, self.radii[1] * scale
        left, right = max(int(u - wide * REACH), 0), min(int(u + wide * REACH) + 1, canvas.width)
        top, bottom = max(int(v - high * REACH), 0), min(int(v + high * REACH) + 1, canvas.height)
        if left >= right or top >= bottom:
            return
        across = (np.arange(left, right) + 0.5 - u) / wide
        down = (np.arange(top, bottom) + 0.5 - v) / high
        clumps = between(tile(), down * 2.6 + self.shift, across * 2.6 + self.shift)
        twigs = between(tile(), down * 9 + self.shift, across * 9)
        x, y = across.astype(np.float32), down.astype(np.float32)[:, None]
        leafy = 0.9 * clumps + 0.5 * twigs
        cover: Field = np.clip((0.85 - x * x - y * y + 0.7 * leafy) * max(0.5 * wide, 1.0), 0, 1)
        sunward = np.float32(0.25 * light.sun if light.shade < 1 else 0) * x
        tone = np.maximum(0.85 + 0.8 * leafy - 0.3 * y + sunward, 0.3)
        air = self.z / (self.z + light.reach)
        leaves = np.array(self.leaves, np.float32) * np.array(light.ambient, np.float32) * np.float32(1 - air)
        haze = np.array(scaled(light.haze, air), np.float32)
        canvas.stamp(top, left, cover, tone * leaves[:, None, None] + haze[:, None, None], Ink(TREE))


def draw_tree(dice: Dice, x: float, z: float) -> Tree:
    wide = dice.uniform(1.1, 2.3)
    return Tree(
        x,
        z,
        trunk=dice.uniform(1.9, 3.0),
        radii=(wide, wide * dice.uniform(0.9, 1.4)),
        leaves=dice.pick(LEAVES),
        bark=dice.pick(BARK),
        shift=dice.uniform(0, 200),
    )

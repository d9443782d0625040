"""Thin and small objects along the kerb: lamps, signs, traffic lights, bollards, railings, bins."""

from __future__ import annotations

from dataclasses import dataclass

from losspool.segmentation.data.kinds.streets.canvas import Color, Point
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.classes import FENCE, LIGHT, POLE, SIGN, VOID, Ink, look_of
from losspool.segmentation.data.kinds.streets.street import Stage

METALS: tuple[Color, ...] = ((0.34, 0.35, 0.36), (0.56, 0.57, 0.58), (0.16, 0.17, 0.17), (0.20, 0.28, 0.24))
RED: Color = (0.76, 0.10, 0.11)
BLUE: Color = (0.08, 0.26, 0.60)
WHITE: Color = (0.90, 0.90, 0.88)
HOUSING: Color = (0.09, 0.10, 0.10)
LAMPS: tuple[Color, ...] = ((1.0, 0.16, 0.10), (1.0, 0.72, 0.10), (0.12, 0.95, 0.45))
GLOW: Color = (0.80, 0.62, 0.34)
THICKEST = 0.0062
"""Maximum half-width of a post, in focal lengths: three pixels wide at 256 pixels; far posts are one pixel wide."""
USUAL_SIGNS: tuple[tuple[str, Color, Color], ...] = (  # shape, border, face
    ("round", RED, WHITE),
    ("round", RED, RED),
    ("round", BLUE, BLUE),
    ("square", WHITE, BLUE),
    ("triangle", RED, WHITE),
)
RARE_SIGNS: tuple[tuple[str, Color, Color], ...] = (  # in the colours of walls, leaves and shop boards
    ("board", (0.80, 0.76, 0.66), (0.42, 0.26, 0.17)),
    ("board", (0.70, 0.76, 0.70), (0.12, 0.34, 0.24)),
    ("diamond", (0.30, 0.29, 0.26), (0.86, 0.66, 0.14)),
)


@dataclass(frozen=True)
class Post:
    """A vertical post on the ground."""

    x: float
    z: float
    height: float
    radius: float
    color: Color

    def draw(self, stage: Stage) -> None:
        scale = stage.camera.focal / self.z
        half = max(min(self.radius, THICKEST * self.z) * scale, 0.5)
        u, foot = stage.camera.at(self.x, 0, self.z)
        color, dark = (stage.light.on(self.color, self.z, gain) for gain in (1.1, 0.75))
        stage.canvas.rectangle((u - half, foot - self.height * scale), (u + half, foot), color, Ink(POLE), foot=dark)


@dataclass(frozen=True)
class Lamp:
    """A street lamp with an arm over the road."""

    post: Post
    reach: float
    """Length of the arm, negative to the left."""

    @property
    def z(self) -> float:
        return self.post.z

    def draw(self, stage: Stage) -> None:
        self.post.draw(stage)
        at, post = stage.camera.at, self.post
        color = stage.light.on(post.color, post.z)
        (u, v), (tip, _) = at(post.x, post.height, post.z), at(post.x + self.reach, post.height, post.z)
        stage.canvas.rectangle((min(u, tip), v - 0.5), (max(u, tip), v + 0.6), color, Ink(POLE))
        wide, high = (max(size * stage.camera.focal / post.z, 0.8) for size in (0.32, 0.08))
        lens = GLOW if stage.light.night else color
        stage.canvas.rectangle((tip - wide, v - high), (tip + wide, v + high), lens, Ink(POLE))
        if stage.light.night:
            stage.canvas.glow((tip, v + high), 2.2 * stage.camera.focal / post.z, GLOW)


@dataclass(frozen=True)
class Sign:
    post: Post
    shape: str
    border: Color
    face: Color
    size: float
    """Half the height, in metres."""
    ink: Ink

    @property
    def z(self) -> float:
        return self.post.z

    def draw(self, stage: Stage) -> None:
        self.post.draw(stage)
        center = stage.camera.at(self.post.x, self.post.height - self.size * 0.8, self.z)
        radius = self.size * stage.camera.focal / self.z
        border, face = (stage.light.on(color, self.z, 1.05) for color in (self.border, self.face))
        self._plate(stage, center, radius, border)
        self._plate(stage, center, radius * 0.74, face)
        if self.face != WHITE and radius > 4:
            mark = stage.light.on(WHITE, self.z)
            low, high = (center[0] - radius * 0.4, center[1] - radius * 0.14), (center[0] + radius * 0.4, center[1])
            stage.canvas.rectangle(low, (high[0], high[1] + radius * 0.12), mark, self.ink)

    def _plate(self, stage: Stage, center: Point, radius: float, color: Color) -> None:
        (u, v), canvas = center, stage.canvas
        if self.shape == "round":
            canvas.ellipse(center, (radius, radius), color, self.ink)
        elif self.shape == "triangle":
            low = v + radius * 0.7
            canvas.polygon(((u - radius, low), (u + radius, low), (u, v - radius)), color, self.ink)
        elif self.shape == "diamond":
            canvas.polygon(((u - radius, v), (u, v - radius), (u + radius, v), (u, v + radius)), color, self.ink)
        else:
            wide = radius * (1.1 if self.shape == "board" else 0.85)
            canvas.rectangle((u - wide, v - radius * 0.75), (u + wide, v + radius * 0.75), color, self.ink)


@dataclass(frozen=True)
class TrafficLight:
    post: Post
    reach: float
    """Length of the arm, negative to the left; 0 if the light is on the post."""
    shows: int

    @property
    def z(self) -> float:
        return self.post.z

    def draw(self, stage: Stage) -> None:
        canvas, at, post = stage.canvas, stage.camera.at, self.post
        post.draw(stage)
        if self.reach:
            (u, v), (tip, _) = at(post.x, post.height, self.z), at(post.x + self.reach, post.height, self.z)
            color = stage.light.on(post.color, self.z)
            canvas.rectangle((min(u, tip), v - 0.6), (max(u, tip), v + 0.6), color, Ink(POLE))
        x, scale = post.x + self.reach, stage.camera.focal / self.z
        housing = stage.light.on(HOUSING, self.z)
        canvas.rectangle(
            at(x - 0.21, post.height + 0.12, self.z), at(x + 0.21, post.height - 1.0, self.z), housing, Ink(LIGHT)
        )
        for place, lamp in enumerate(LAMPS):
            u, v = at(x, post.height - 0.10 - 0.34 * place, self.z)
            on = place == self.shows
            color = lamp if on else stage.light.on(lamp, self.z, 0.22)
            canvas.ellipse((u, v), (max(0.125 * scale, 0.6), max(0.125 * scale, 0.6)), color, Ink(LIGHT))
            if on and stage.light.night:
                canvas.glow((u, v), 0.7 * scale, lamp)


@dataclass(frozen=True)
class Railing:
    """A fence panel along the kerb. Its label includes the gaps between bars, as human annotation does."""

    x: float
    z: float
    end: float
    height: float
    color: Color

    def draw(self, stage: Stage) -> None:
        canvas, at, ink = stage.canvas, stage.camera.at, Ink(FENCE)
        color, middle = stage.light.on(self.color, self.z), (self.z + self.end) / 2

        def strip(low: float, high: float, opacity: float) -> None:
            corners = [at(self.x, low, self.z), at(self.x, high, self.z)]
            corners += [at(self.x, high, self.end), at(self.x, low, self.end)]
            canvas.polygon(corners, stage.light.on(self.color, middle), ink, opacity=opacity)

        strip(0, self.height, 0.22)
        strip(self.height * 0.90, self.height, 1)
        strip(self.height * 0.12, self.height * 0.2, 1)
        bars = max(round(40 / self.z), 1)  # fewer bars in the distance, where they would merge
        for bar in range(bars):
            z = self.z + (self.end - self.z) * bar / bars
            (u, top), (_, foot) = at(self.x, self.height, z), at(self.x, 0, z)
            half = max(0.02 * stage.camera.focal / z, 0.3)
            canvas.rectangle((u - half, top), (u + half, foot), color, ink)


@dataclass(frozen=True)
class Bin:
    """A bin. It belongs to no class and is labelled void."""

    x: float
    z: float
    width: float
    height: float
    color: Color

    def draw(self, stage: Stage) -> None:
        at, tone = stage.camera.at, stage.light.on
        low, high = at(self.x - self.width / 2, self.height, self.z), at(self.x + self.width / 2, 0, self.z)
        stage.canvas.rectangle(low, high, tone(self.color, self.z), VOID, foot=tone(self.color, self.z, 0.6))
        lid = (high[0], low[1] + max(0.12 * (high[1] - low[1]), 0.6))
        stage.canvas.rectangle(low, lid, tone(self.color, self.z, 1.4), VOID)


def draw_lamp(dice: Dice, x: float, z: float) -> Lamp:
    reach = dice.uniform(0.7, 1.6) * (-1 if x > 0 else 1)
    return Lamp(Post(x, z, dice.uniform(4.8, 7.5), 0.08, dice.pick(METALS)), reach)


def draw_sign(dice: Dice, x: float, z: float) -> Sign:
    look, ink = look_of(SIGN, "rare")
    rare = dice.chance(look.share)
    shape, border, face = dice.pick(RARE_SIGNS if rare else USUAL_SIGNS)
    post = Post(x, z, dice.uniform(2.3, 3.1), 0.04, dice.pick(METALS))
    return Sign(post, shape, border, face, dice.uniform(0.30, 0.46), ink if rare else look_of(SIGN, "usual")[1])


def draw_traffic_light(dice: Dice, x: float, z: float) -> TrafficLight:
    arm = dice.chance(0.3)
    post = Post(x, z, dice.uniform(4.2, 5.0) if arm else dice.uniform(2.9, 3.5), 0.06, dice.pick(METALS))
    reach = dice.uniform(1.5, 3.2) * (-1 if x > 0 else 1) if arm else 0.0
    return TrafficLight(post, reach, dice.pick((0, 0, 1, 2, 2)))

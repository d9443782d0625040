"""Place objects in a street. Their frequencies create the long-tailed class distribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from losspool.segmentation.data.kinds.streets.cars import Car, draw_car
from losspool.segmentation.data.kinds.streets.chance import Dice
from losspool.segmentation.data.kinds.streets.furniture import (
    METALS,
    Bin,
    Post,
    Railing,
    draw_lamp,
    draw_sign,
    draw_traffic_light,
)
from losspool.segmentation.data.kinds.streets.people import draw_person
from losspool.segmentation.data.kinds.streets.street import Stage, Street
from losspool.segmentation.data.kinds.streets.trees import draw_tree

# Probability that a scene, or one side of its street, has each kind of object.
PARKED, AHEAD, ONCOMING = 0.55, 0.5, 0.5
TREES, LAMPS, SIGNS, PEOPLE, RAILINGS, BOLLARDS, BINS = 0.4, 0.55, 0.6, 0.6, 0.2, 0.15, 0.3

PANEL = 2.0
"""Length of a railing panel, in metres."""
SPACING = 6.2
"""Distance between parked cars, in metres."""


class Thing(Protocol):
    @property
    def z(self) -> float: ...

    def draw(self, stage: Stage) -> None: ...


def draw_things(dice: Dice, street: Street) -> list[Thing]:
    """Return all objects from far to near, so that near objects cover far ones."""
    things: list[Thing] = [
        *_cars(dice.fork("cars"), street),
        *_people(dice.fork("people"), street),
    ]
    for side in (0, 1):
        standing = (
            *_trees(dice.fork("trees", side), street, side),
            *_furniture(dice.fork("furniture", side), street, side),
        )
        things += [thing for thing in standing if not street.open_at(side, thing.z)]
    return sorted(things, key=lambda thing: -thing.z)


def _kerbside(street: Street, side: int, share: float) -> float:
    """Return a position on the pavement, from the kerb (0) to the wall (1)."""
    return street.kerbs[side] + (street.walls[side] - street.kerbs[side]) * share


def _cars(dice: Dice, street: Street) -> Iterator[Car]:
    left, right = street.kerbs
    lane = (right - left) / street.lanes
    parked = [dice.chance(PARKED), dice.chance(PARKED)]
    for side, outward in ((0, -1), (1, 1)):
        z = dice.uniform(6, 14)
        for _ in range(dice.whole(2, 6) if parked[side] else 0):
            if dice.chance(0.72):
                facing = dice.chance(0.35 if side else 0.75)
                yield draw_car(dice, street.kerbs[side] - outward * 1.05, z, facing=facing, moving=False)
            z += SPACING * dice.uniform(1, 1.3)
    if dice.chance(AHEAD):
        middle = right - lane / 2 - (1.0 if parked[1] else 0.0)
        yield draw_car(dice, middle, dice.uniform(9, 40), facing=False, moving=True)
    if dice.chance(ONCOMING):
        middle = left + lane / 2 + (1.0 if parked[0] else 0.0)
        yield draw_car(dice, middle, dice.uniform(8, 45), facing=True, moving=True)


def _trees(dice: Dice, street: Street, side: int) -> Iterator[Thing]:
    if dice.chance(TREES):
        z, step = dice.uniform(7, 15), dice.uniform(7, 13)
        for _ in range(dice.whole(2, 4)):
            yield draw_tree(dice, _kerbside(street, side, dice.uniform(0.2, 0.4)), z)
            z += step * dice.uniform(0.8, 1.4)


def _furniture(dice: Dice, street: Street, side: int) -> Iterator[Thing]:
    edge = _kerbside(street, side, 0.12)
    if dice.chance(LAMPS):
        z, step = dice.uniform(7, 18), dice.uniform(14, 22)
        yield from (draw_lamp(dice, edge, z + number * step) for number in range(3))
    if dice.chance(SIGNS):
        yield from (draw_sign(dice, edge, dice.uniform(8, 30)) for _ in range(dice.whole(1, 2)))
    if street.lights:
        z = street.lights - 0.4 if side else street.lights + 5.5  # on the left, the light beyond the crossing
        yield draw_traffic_light(dice, _kerbside(street, side, 0.1), z)
    if dice.chance(RAILINGS):
        z, height, color = dice.uniform(6, 14), dice.uniform(0.9, 1.15), dice.pick(METALS)
        for panel in range(dice.whole(2, 6)):  # separate panels, so that each sorts by depth
            yield Railing(edge, z + panel * PANEL, z + (panel + 1) * PANEL, height, color)
    elif dice.chance(BOLLARDS):
        z, color = dice.uniform(6, 12), dice.pick(METALS)
        yield from (Post(edge, z + 1.8 * k, 0.95, 0.06, color) for k in range(dice.whole(3, 6)))
    if dice.chance(BINS):
        color = dice.pick((*METALS, (0.16, 0.30, 0.50), (0.46, 0.34, 0.20)))
        place = _kerbside(street, side, dice.uniform(0.3, 0.9))
        yield Bin(place, dice.uniform(7, 25), dice.uniform(0.5, 1.1), dice.uniform(0.8, 1.3), color)


def _people(dice: Dice, street: Street) -> Iterator[Thing]:
    if not dice.chance(PEOPLE):
        return
    left, right = street.kerbs
    for _ in range(dice.whole(1, 4)):
        z = dice.uniform(7, 32)
        if dice.chance(0.2):
            yield draw_person(dice, dice.uniform(left, right), street.crossing + 1.5 if street.crossing else z)
        else:
            yield draw_person(dice, _kerbside(street, dice.whole(0, 1), dice.uniform(0.25, 0.85)), z)

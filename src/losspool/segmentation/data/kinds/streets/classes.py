"""The classes of the street scenes, and the looks of some classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from losspool.segmentation.data.protocol import IGNORE, ClassInfo

# The colours are distinguishable under all common forms of colour blindness: at least 20 ΔE when simulated.
CLASSES = (
    ClassInfo("road", (72, 56, 78)),
    ClassInfo("pavement", (174, 160, 230)),
    ClassInfo("building", (166, 136, 100)),
    ClassInfo("sky", (156, 232, 250)),
    ClassInfo("tree", (40, 86, 56)),
    ClassInfo("car", (26, 98, 222)),
    ClassInfo("fence", (250, 220, 142)),
    ClassInfo("pole", (226, 255, 222)),
    ClassInfo("sign", (240, 162, 0)),
    ClassInfo("light", (230, 10, 160)),
    ClassInfo("pedestrian", (208, 42, 6)),
)
ROAD, PAVEMENT, BUILDING, SKY, TREE, CAR, FENCE, POLE, SIGN, LIGHT, PEDESTRIAN = range(len(CLASSES))


@dataclass(frozen=True)
class Look:
    """One appearance of a class, and its frequency."""

    class_index: int
    name: str
    share: float
    """Probability that an object of the class has this look; the shares of a class sum to one."""

    @property
    def class_name(self) -> str:
        return CLASSES[self.class_index].name

    @property
    def key(self) -> str:
        """Class and look as one metric name: ``pedestrian/rare``."""
        return f"{self.class_name}/{self.name}"


LOOKS = (
    Look(CAR, "day", 0.87),
    Look(CAR, "night", 0.13),
    Look(SIGN, "usual", 0.85),
    Look(SIGN, "rare", 0.15),
    Look(PEDESTRIAN, "common", 0.88),
    Look(PEDESTRIAN, "rare", 0.12),
)


class Ink(NamedTuple):
    """What a brush writes besides colour: the label, and one plus the look's index in LOOKS."""

    label: int
    look: int = 0


VOID = Ink(IGNORE)


def look_of(class_index: int, name: str) -> tuple[Look, Ink]:
    """Return the look of that name, and the ink for its pixels."""
    for number, look in enumerate(LOOKS, start=1):
        if (look.class_index, look.name) == (class_index, name):
            return look, Ink(class_index, number)
    raise KeyError((class_index, name))

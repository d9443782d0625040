"""The paper's own numbers (Rota Bulò, Neuhold and Kontschieder, CVPR 2017), in percent as printed there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """A mean and its standard deviation, as printed; the works that the paper compares with give no deviation."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f" ± {self.std:.2f}")


@dataclass(frozen=True)
class SweepRow:
    """A row of Table 1."""

    at_steps: tuple[float, ...]
    printed: Printed


STEPS = (150_000, 160_000, 165_000)
"""The columns of Table 1."""

TABLE1 = {
    1.0: SweepRow((74.35, 74.64, 74.64), Printed(74.54, 0.17)),
    1.1: SweepRow((74.34, 74.61, 74.60), Printed(74.52, 0.15)),
    1.2: SweepRow((74.42, 74.60, 74.77), Printed(74.60, 0.18)),
    1.3: SweepRow((74.52, 74.71, 74.69), Printed(74.64, 0.10)),
    1.4: SweepRow((74.33, 74.51, 74.49), Printed(74.44, 0.10)),
    1.5: SweepRow((74.03, 73.99, 74.04), Printed(74.02, 0.03)),
    1.6: SweepRow((74.05, 74.42, 74.52), Printed(74.33, 0.25)),
    1.7: SweepRow((74.10, 74.56, 74.74), Printed(74.57, 0.17)),
    1.8: SweepRow((73.65, 74.18, 74.17), Printed(74.00, 0.30)),
    1.9: SweepRow((73.97, 74.21, 74.48), Printed(74.22, 0.26)),
    2.3: SweepRow((73.93, 74.23, 74.12), Printed(74.09, 0.15)),
}
"""By p: Cityscapes' validation images, m = 25 %, efficient tiling."""

TABLE1_BASE = SweepRow((73.12, 73.16, 73.10), Printed(73.13, 0.03))
"""Its last row: the plain loss with the paper's sampling, ``base_plus`` here."""

M_SWEEP = {0.10: Printed(74.09, 0.22), 0.25: Printed(74.64, 0.10), 0.50: Printed(73.44, 0.21)}
"""By m, at p = 1.3, the rest as in Table 1 (Sec. 5.2's text)."""

METHODS = {
    "cityscapes": {
        "base": Printed(72.55, 0.04),
        "base_plus": Printed(73.63, 0.04),
        "median_frequency": Printed(69.81, 0.08),
        "lmp_loss_only": Printed(74.17, 0.03),
        "lmp": Printed(75.06, 0.09),
    },
    "voc": {
        "base": Printed(75.74, 0.05),
        "base_plus": Printed(75.42, 0.04),
        "median_frequency": Printed(74.93, 0.03),
        "lmp_loss_only": Printed(76.01, 0.01),
        "lmp": Printed(76.29, 0.02),
    },
}
"""Table 2 and its twin for VOC, by data set: optimized tiling on Cityscapes, whole images on VOC.

The paper calls our ``base`` "BASE" with uniform sampling and our ``base_plus`` "BASE+"; its tables of classes and its
sweep compare with the latter.
"""

OTHER_WORKS = {
    "cityscapes": {
        "DeepLabV2 (Chen et al.)": Printed(71.0),
        "DeepLabV2 with CRF (Chen et al.)": Printed(71.4),
        "FCRN-101 (Wu et al.)": Printed(71.16),
        "FCRN-152 (Wu et al.)": Printed(71.51),
        "FCRN-152, online bootstrapping (Wu et al.)": Printed(74.64),
    },
    "voc": {
        "DeepLabV2, base without COCO (Chen et al.)": Printed(68.72),
        "DeepLabV2, multi-scale (Chen et al.)": Printed(76.35),
        "DeepLabV2, multi-scale, CRF (Chen et al.)": Printed(77.69),
        "FCRN-101 (Wu et al.)": Printed(73.41),
        "FCRN-152 (Wu et al.)": Printed(73.32),
        "FCRN-101, online bootstrapping (Wu et al.)": Printed(74.80),
        "FCRN-152, online bootstrapping (Wu et al.)": Printed(74.72),
    },
}
"""What the paper lists beside its own, single networks of ResNet's size."""


@dataclass(frozen=True)
class ClassRows:
    """Two rows of Table 3: the classes' means and standard deviations, each with that of the mIoU at its end."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# fmt: off
CLASSES = {
    "cityscapes": (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation",
        "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
    ),
    "voc": (
        "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
        "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
    ),
}
TABLE3 = {
    "cityscapes": {
        "base_plus": ClassRows(
            (97.37, 80.60, 90.99, 53.23, 54.67, 56.72, 63.29, 72.62, 91.19, 59.85,
             93.46, 78.59, 59.08, 93.41, 68.94, 80.49, 67.77, 62.51, 74.09, 73.63),
            (0.01, 0.02, 0.14, 0.92, 0.05, 0.08, 0.56, 0.13, 0.13, 0.96,
             0.16, 0.18, 0.31, 0.12, 0.26, 1.08, 3.12, 0.70, 0.11, 0.04),
        ),
        "lmp": ClassRows(
            (97.51, 81.56, 91.52, 55.43, 56.88, 59.01, 66.33, 74.77, 91.61, 60.85,
             93.80, 79.91, 60.76, 93.93, 67.11, 83.87, 70.42, 65.15, 75.76, 75.06),
            (0.05, 0.32, 0.06, 0.80, 0.68, 0.31, 0.27, 0.21, 0.07, 0.27,
             0.09, 0.08, 0.29, 0.01, 0.77, 0.44, 0.53, 0.44, 0.14, 0.09),
        ),
    },
    "voc": {
        "base_plus": ClassRows(
            (92.69, 83.21, 78.46, 81.39, 67.95, 77.59, 92.14, 80.17, 86.99, 38.49, 80.86,
             55.95, 81.03, 80.64, 79.28, 81.14, 61.74, 81.51, 47.76, 82.25, 72.68, 75.42),
            (0.00, 0.32, 0.04, 0.03, 0.14, 0.02, 0.12, 0.14, 0.08, 0.03, 0.06,
             0.10, 0.02, 0.22, 0.06, 0.03, 0.35, 0.21, 0.24, 0.09, 0.24, 0.04),
        ),
        "lmp": ClassRows(
            (92.84, 85.02, 79.62, 81.43, 69.99, 76.36, 92.38, 82.38, 89.43, 39.78, 82.70,
             58.60, 82.85, 81.82, 80.17, 81.60, 61.22, 84.30, 45.44, 82.52, 71.70, 76.29),
            (0.02, 0.18, 0.03, 0.34, 0.26, 0.10, 0.17, 0.05, 0.10, 0.06, 0.17,
             0.10, 0.05, 0.03, 0.07, 0.05, 0.14, 0.19, 0.04, 0.09, 0.10, 0.02),
        ),
    },
}
# fmt: on

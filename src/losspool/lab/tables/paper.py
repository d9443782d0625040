"""The paper's own numbers (Rota Bulò, Neuhold and Kontschieder, CVPR 2017), in percent as printed, and its tables.

A pair is a mean and its standard deviation. The works that the paper compares with give no deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from losspool.lab.tables.table import Cell, Table, percent, text
from losspool.segmentation.config import Config
from losspool.segmentation.prediction import Spread

STEPS = (150_000, 160_000, 165_000)
"""The columns of Table 1."""

TABLE1: dict[float, tuple[float, ...]] = {
    1.0: (74.35, 74.64, 74.64, 74.54, 0.17),
    1.1: (74.34, 74.61, 74.60, 74.52, 0.15),
    1.2: (74.42, 74.60, 74.77, 74.60, 0.18),
    1.3: (74.52, 74.71, 74.69, 74.64, 0.10),
    1.4: (74.33, 74.51, 74.49, 74.44, 0.10),
    1.5: (74.03, 73.99, 74.04, 74.02, 0.03),
    1.6: (74.05, 74.42, 74.52, 74.33, 0.25),
    1.7: (74.10, 74.56, 74.74, 74.57, 0.17),
    1.8: (73.65, 74.18, 74.17, 74.00, 0.30),
    1.9: (73.97, 74.21, 74.48, 74.22, 0.26),
    2.3: (73.93, 74.23, 74.12, 74.09, 0.15),
}
"""Scores at STEPS, then their mean and deviation, by p. Cityscapes' validation images, m = 25 %, efficient tiling."""

TABLE1_BASE = (73.12, 73.16, 73.10, 73.13, 0.03)
"""Its last row: the plain loss with the paper's sampling, ``base_plus`` here."""

M_SWEEP: dict[float, tuple[float, ...]] = {0.10: (74.09, 0.22), 0.25: (74.64, 0.10), 0.50: (73.44, 0.21)}
"""By m, at p = 1.3, the rest as in Table 1 (Sec. 5.2's text)."""

METHODS: dict[str, dict[str, tuple[float, ...]]] = {
    "cityscapes": {
        "base": (72.55, 0.04),
        "base_plus": (73.63, 0.04),
        "median_frequency": (69.81, 0.08),
        "lmp_loss_only": (74.17, 0.03),
        "lmp": (75.06, 0.09),
    },
    "voc": {
        "base": (75.74, 0.05),
        "base_plus": (75.42, 0.04),
        "median_frequency": (74.93, 0.03),
        "lmp_loss_only": (76.01, 0.01),
        "lmp": (76.29, 0.02),
    },
}
"""Table 2 and its twin for VOC, by dataset: optimized tiling on Cityscapes, whole images on VOC.

The paper calls our ``base`` "BASE" with uniform sampling and our ``base_plus`` "BASE+"; its tables of classes and its
sweep compare with the latter.
"""

OTHER_WORKS: dict[str, dict[str, tuple[float, ...]]] = {
    "cityscapes": {
        "DeepLabV2 (Chen et al.)": (71.0,),
        "DeepLabV2 with CRF (Chen et al.)": (71.4,),
        "FCRN-101 (Wu et al.)": (71.16,),
        "FCRN-152 (Wu et al.)": (71.51,),
        "FCRN-152, online bootstrapping (Wu et al.)": (74.64,),
    },
    "voc": {
        "DeepLabV2, base without COCO (Chen et al.)": (68.72,),
        "DeepLabV2, multi-scale (Chen et al.)": (76.35,),
        "DeepLabV2, multi-scale, CRF (Chen et al.)": (77.69,),
        "FCRN-101 (Wu et al.)": (73.41,),
        "FCRN-152 (Wu et al.)": (73.32,),
        "FCRN-101, online bootstrapping (Wu et al.)": (74.80,),
        "FCRN-152, online bootstrapping (Wu et al.)": (74.72,),
    },
}
"""Methods that the paper compares with: single networks of ResNet's size."""

# fmt: off
CLASSES: dict[str, tuple[str, ...]] = {
    "cityscapes": (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation",
        "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
    ),
    "voc": (
        "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
        "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
    ),
}
TABLE3: dict[str, dict[str, tuple[tuple[float, ...], tuple[float, ...]]]] = {
    "cityscapes": {
        "base_plus": (
            (97.37, 80.60, 90.99, 53.23, 54.67, 56.72, 63.29, 72.62, 91.19, 59.85,
             93.46, 78.59, 59.08, 93.41, 68.94, 80.49, 67.77, 62.51, 74.09, 73.63),
            (0.01, 0.02, 0.14, 0.92, 0.05, 0.08, 0.56, 0.13, 0.13, 0.96,
             0.16, 0.18, 0.31, 0.12, 0.26, 1.08, 3.12, 0.70, 0.11, 0.04),
        ),
        "lmp": (
            (97.51, 81.56, 91.52, 55.43, 56.88, 59.01, 66.33, 74.77, 91.61, 60.85,
             93.80, 79.91, 60.76, 93.93, 67.11, 83.87, 70.42, 65.15, 75.76, 75.06),
            (0.05, 0.32, 0.06, 0.80, 0.68, 0.31, 0.27, 0.21, 0.07, 0.27,
             0.09, 0.08, 0.29, 0.01, 0.77, 0.44, 0.53, 0.44, 0.14, 0.09),
        ),
    },
    "voc": {
        "base_plus": (
            (92.69, 83.21, 78.46, 81.39, 67.95, 77.59, 92.14, 80.17, 86.99, 38.49, 80.86,
             55.95, 81.03, 80.64, 79.28, 81.14, 61.74, 81.51, 47.76, 82.25, 72.68, 75.42),
            (0.00, 0.32, 0.04, 0.03, 0.14, 0.02, 0.12, 0.14, 0.08, 0.03, 0.06,
             0.10, 0.02, 0.22, 0.06, 0.03, 0.35, 0.21, 0.24, 0.09, 0.24, 0.04),
        ),
        "lmp": (
            (92.84, 85.02, 79.62, 81.43, 69.99, 76.36, 92.38, 82.38, 89.43, 39.78, 82.70,
             58.60, 82.85, 81.82, 80.17, 81.60, 61.22, 84.30, 45.44, 82.52, 71.70, 76.29),
            (0.02, 0.18, 0.03, 0.34, 0.26, 0.10, 0.17, 0.05, 0.10, 0.06, 0.17,
             0.10, 0.05, 0.03, 0.07, 0.05, 0.14, 0.19, 0.04, 0.09, 0.10, 0.02),
        ),
    },
}
"""Means and deviations of the classes, each with that of the mIoU at its end."""
# fmt: on


def paper_tables() -> list[Table]:
    """Table 1, the sweep of m, and Tables 2 to 4, with notes on contradictory numbers."""
    tables = [table1(), m_sweep()]
    for dataset in METHODS:
        tables += [table2(dataset), table3(dataset)]
    return tables


def table1() -> Table:
    rows = {**{f"{p:.1f}": row for p, row in TABLE1.items()}, "base_plus": TABLE1_BASE}
    scores = [[score / 100 for score in row[:3]] for row in rows.values()]
    printed = [_spread(row[3:]) for row in rows.values()]
    notes = [
        f"p = {label}: the paper prints {theirs}, its columns give {ours}."
        for label, ours, theirs in zip(rows, map(Spread.of, scores), printed, strict=True)
        if str(ours) != str(theirs)
    ]
    return Table.of_columns(
        "paper-table1",
        "The paper's Table 1: sensitivity to p, mIoU in %",
        {"p": [*map(text, rows)], **checkpoint_columns(STEPS, scores), "paper": [*map(text, printed)]},
        best="Mean",
        notes=["Cityscapes' validation images, m = 25 %, efficient tiling.", *notes],
        last=True,
    )


def m_sweep() -> Table:
    rows = {f"m = {100 * m:g} %": row for m, row in M_SWEEP.items()}
    notes = ["Cityscapes' validation images, p = 1.3, efficient tiling; given in the text of Sec. 5.2."]
    return _method_table("paper-m-sweep", "The paper's sweep of m, mIoU in %", rows, notes)


def table2(dataset: str) -> Table:
    rows = {**OTHER_WORKS[dataset], **METHODS[dataset]}
    title = f"The paper's Table {2 if dataset == 'cityscapes' else 4}: methods on {dataset}, mIoU in %"
    return _method_table(f"paper-table2-{dataset}", title, rows)


def table3(dataset: str) -> Table:
    rows: list[list[Cell]] = []
    notes = []
    for label, (means, deviations) in TABLE3[dataset].items():
        rows += class_rows(label, [_spread(pair) for pair in zip(means, deviations, strict=True)])
        found = sum(means[:-1]) / len(means[:-1])
        if abs(found - means[-1]) > 0.01 + 1e-9:  # both are rounded: half a digit each
            notes.append(f"{label}: the paper prints a mean of {means[-1]:.2f}, its classes give {found:.2f}.")
    title = f"The paper's Table 3: classes of {dataset}, IoU in %"
    columns = ["Method", *CLASSES[dataset], "Mean"]
    return Table(f"paper-table3-{dataset}", title, columns, rows, notes, frozenset({2}))


def checkpoint_columns(steps: Sequence[int], scores: Sequence[Sequence[float]]) -> dict[str, list[Cell]]:
    """Scores at each checkpoint, their mean and deviation; ``scores`` by row, between 0 and 1."""
    names = [*map(step_label, steps)] or ["evaluated"]
    spreads = [Spread.of(row) for row in scores]
    return {
        **{name: [percent(row[place]) for row in scores] for place, name in enumerate(names)},
        "Mean": [percent(spread.mean) for spread in spreads],
        "Std.Dev.": [percent(spread.std) for spread in spreads],
    }


def class_rows(label: str, scores: Sequence[Spread | None]) -> list[list[Cell]]:
    """The means of a method's classes, and their deviations where there are any."""
    rows = [[text(f"{label} Mean"), *(percent(each.mean if each else None) for each in scores)]]
    if any(each and each.std is not None for each in scores):
        rows.append([text(f"{label} Std.Dev."), *(percent(each.std if each else None) for each in scores)])
    return rows


def step_label(step: int) -> str:
    """150000 as the paper writes it: 150k."""
    return f"{step // 1000}k" if step >= 10_000 and step % 1000 == 0 else str(step)


def sweep_score(config: Config, setting: str) -> Spread | None:
    """What the paper prints for a run in a sweep of this setting; None where data or loss differ from the paper's."""
    row: Sequence[float] | None = None
    if isinstance(config.loss.p, dict) or isinstance(config.loss.m, dict):
        return None
    if config.data.name == "cityscapes" and config.method == "base_plus":
        row = TABLE1_BASE[3:]
    elif config.data.name == "cityscapes" and config.method == "lmp":
        if setting == "loss.p" and config.loss.share == 0.25 and config.loss.p in TABLE1:
            row = TABLE1[config.loss.p][3:]
        elif setting == "loss.m" and config.loss.p == 1.3:
            row = M_SWEEP.get(config.loss.share)
    return None if row is None else _spread(row)


def method_score(dataset: str, label: str) -> Spread | None:
    """What Table 2 prints, of VOC Table 4. A label with settings beside its name is not one of the paper's methods."""
    row = METHODS.get(dataset, {}).get(label)
    return None if row is None else _spread(row)


def class_means(dataset: str, label: str, classes: Sequence[str]) -> Sequence[float]:
    """What Table 3 prints, in percent, with the mIoU last; empty where the classes differ."""
    means, _ = TABLE3.get(dataset, {}).get(label, ((), ()))
    return means if tuple(classes) == CLASSES.get(dataset) else ()


def _method_table(name: str, title: str, rows: Mapping[str, Sequence[float]], notes: Sequence[str] = ()) -> Table:
    scores = [_spread(row) for row in rows.values()]
    columns = {
        "Method": [*map(text, rows)],
        "mean IoU": [percent(score.mean) for score in scores],
        "Std.Dev.": [percent(score.std) for score in scores],
    }
    return Table.of_columns(name, title, columns, best="mean IoU", notes=notes)


def _spread(row: Sequence[float]) -> Spread:
    return Spread(row[0] / 100, row[1] / 100 if len(row) > 1 else None)

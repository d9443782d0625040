"""Where a method gains, recomputed from the counts of single images."""

import json

import pytest
from scipy import stats

from lab_runs import CLASSES, write_lab
from lab_tables import rows, tables
from losspool.segmentation.base import UserError

KINDS = ("hits", "labelled", "predicted")
SEEDS = (0, 1)


@pytest.fixture
def root(tmp_path):
    """``base`` and ``lmp``, evaluated; a quarter of each count is near an outline, but more of the hits of lmp."""
    root = write_lab(tmp_path / "runs", seeds=SEEDS, evaluated=(60,), previews=False)
    for path in root.glob("*/evaluation-*.json"):
        content = json.loads(path.read_text())
        for line in content["checkpoints"][0]["per_image"]:
            near = {kind: [count // 4 for count in line[kind]] for kind in KINDS}
            if "lmp" in path.parent.name:  # all that can be
                near["hits"] = list(map(min, near["labelled"], near["predicted"], line["hits"]))
            line |= {f"boundary_{kind}": near[kind] for kind in KINDS}
            inside = {kind: [a - b for a, b in zip(line[kind], near[kind], strict=True)] for kind in KINDS}
            line |= {f"interior_{kind}": inside[kind] for kind in KINDS}
        path.write_text(json.dumps(content))
    return root


def counts(root, method, seed, place, part=""):
    (path,) = (root / f"{method}-s{seed}").glob("evaluation-*.json")
    images = json.loads(path.read_text())["checkpoints"][0]["per_image"]
    return [sum(image[part + kind][place] for image in images) for kind in KINDS]


def iou(root, method, place, part=""):
    found = []
    for seed in SEEDS:
        hits, labelled, predicted = counts(root, method, seed, place, part)
        found.append(hits / (labelled + predicted - hits))
    return sum(found) / len(found)


def test_gains_stand_beside_what_a_class_is_like(root):
    table = tables(root, "gains", source="test")["gains"]
    found = rows(table)
    total = sum(counts(root, "base", 0, place)[1] for place in range(len(CLASSES)))
    gains, shares = [], []
    for place, info in enumerate(CLASSES):
        row, labelled = found[info.name], counts(root, "base", 0, place)[1]
        shares.append(labelled / total)
        gains.append(iou(root, "lmp", place) - iou(root, "base", place))
        near = counts(root, "base", 0, place, "boundary_")[1] / labelled
        expected = {"% of pixels": shares[-1], "% near its outline": near, "IoU of base": iou(root, "base", place)}
        expected["Δ IoU"] = gains[-1]
        for part in ("boundary", "interior"):
            expected[f"Δ {part} IoU"] = iou(root, "lmp", place, f"{part}_") - iou(root, "base", place, f"{part}_")
        assert {name: float(row[name]) for name in expected} == pytest.approx(
            {name: 100 * value for name, value in expected.items()}, abs=0.0051
        )
    assert (
        f"over {len(CLASSES)} classes (Spearman): {stats.spearmanr(shares, gains).statistic:+.2f} with % of"
        in (table.notes[-1])
    )
    assert "Mean over 2 shared seeds." in table.notes[-2]


def test_it_needs_counts_near_outlines(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=SEEDS, evaluated=(60,), previews=False)
    with pytest.raises(UserError, match="these runs make no table 'gains'"):
        tables(root, "gains", source="test")

"""The tables ``metrics`` and ``confusion``, recomputed from the evaluations' files in plain Python."""

import json
import statistics

import pytest

from lab_runs import CLASSES, statistics_of, write_lab
from lab_tables import rows, tables
from losspool.segmentation.base import UserError
from plain_bootstrap import plain_mean, stored_counts

KINDS = ("hits", "labelled", "predicted")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return write_lab(tmp_path_factory.mktemp("scores") / "runs", seeds=(0, 1), evaluated=(50, 60), previews=False)


def plain_score(name, counts, place):
    """Of one checkpoint and class; counts are images × 3 × classes."""
    single = [[kind[place] for kind in image] for image in counts]
    hits, labelled, predicted = (sum(column) for column in zip(*single, strict=True))
    if name == "IoU per image":
        return plain_mean([h / (a + b - h) if a + b else None for h, a, b in single])
    if name == "Dice per image":
        return plain_mean([2 * h / (a + b) if a + b else None for h, a, b in single])
    return {"Dice": 2 * hits / (labelled + predicted), "precision": hits / predicted, "recall": hits / labelled}[name]


def test_metrics(evaluated):
    found = rows(tables(evaluated, "metrics", source="test")["metrics"])
    names = ("Dice", "precision", "recall", "IoU per image", "Dice per image")
    assert len(found) == 2 * 2 * len(names)  # mean and deviation of both methods; no boundary in these files
    for method in ("base", "lmp"):
        counts = [stored_counts(evaluated / f"{method}-s{seed}") for seed in (0, 1)]
        for name in names:
            means = []
            for place, info in enumerate(CLASSES):
                seeds = [100 * statistics.mean(plain_score(name, step, place) for step in run) for run in counts]
                assert float(found[f"{name}, {method} Mean"][info.name]) == pytest.approx(statistics.mean(seeds))
                assert float(found[f"{name}, {method} Std.Dev."][info.name]) == pytest.approx(statistics.stdev(seeds))
                means.append(statistics.mean(seeds))
            assert float(found[f"{name}, {method} Mean"]["Mean"]) == pytest.approx(statistics.mean(means))


def test_confusion(evaluated):
    found = rows(tables(evaluated, "confusion", source="test")["confusion"])
    for method in ("base", "lmp"):
        matrices = []
        for seed in (0, 1):
            (path,) = (evaluated / f"{method}-s{seed}").glob("evaluation-test-*.json")
            matrices += [entry["confusion"] for entry in json.loads(path.read_text())["checkpoints"]]
        for row, info in enumerate(CLASSES):
            total = sum(sum(matrix[row]) for matrix in matrices)
            shares = [100 * sum(matrix[row][column] for matrix in matrices) / total for column in range(len(CLASSES))]
            assert [float(share) for share in found[f"{method}: {info.name}"].values()] == pytest.approx(shares)


def changed(root, change):
    for path in root.rglob("evaluation-*.json"):
        stored = json.loads(path.read_text())
        for entry in stored["checkpoints"]:
            change(entry)
        path.write_text(json.dumps(stored))


def test_boundary_iou_is_of_its_own_counts(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)

    def halve(entry):
        for line in entry["per_image"]:
            line |= {f"boundary_{kind}": [count // 2 for count in line[kind]] for kind in KINDS}

    changed(root, halve)
    found = rows(tables(root, "metrics", source="test")["metrics"])["boundary IoU, lmp Mean"]
    counts = stored_counts(root / "lmp-s0")[0]
    for place, info in enumerate(CLASSES):
        hits, labelled, predicted = (sum(image[kind][place] // 2 for image in counts) for kind in (0, 1, 2))
        assert float(found[info.name]) == pytest.approx(100 * hits / (labelled + predicted - hits))
    few = rows(tables(root, "metrics", source="test", classes=["pole"], images="Seq*")["metrics"])
    assert list(few["boundary IoU, lmp Mean"]) == ["pole", "Mean"]
    assert few["boundary IoU, lmp Mean"]["pole"] != found["pole"]


def test_they_need_an_evaluation_of_everything(evaluated, tmp_path):
    for kind, options in (("metrics", {}), ("confusion", {}), ("confusion", {"source": "test", "images": "Seq*"})):
        with pytest.raises(UserError, match=f"make no table '{kind}'"):
            tables(evaluated, kind, **options)


@pytest.mark.parametrize("matrix", [[[1, 2], [3]], [[1]], [[0.5] * 5] * 5, [[-1] * 5] * 5, None])
def test_a_damaged_matrix_is_named(tmp_path, matrix):
    root = write_lab(tmp_path / "runs", seeds=(0,), evaluated=(60,), previews=False)
    changed(root, lambda entry: entry.update(confusion=matrix))
    with pytest.raises(UserError, match=r"evaluation-test-none-60.json: the confusion matrix of step 60"):
        statistics_of(root, source="test")

"""The questions beside the paper's tables, recomputed from metrics.jsonl: worst classes, convergence, looks, rare."""

import json
import re

import pytest
from scipy import stats

from lab_runs import CLASSES, LOOKS, PIXELS, lab_config, statistics_of, write_lab, write_lab_run
from lab_tables import rows, tables
from losspool.lab.tables import answer, rare_classes
from losspool.lab.tables.questions import needed_per_class
from losspool.segmentation.base import UserError
from plain_metrics import STEPS, interval, lines, score


def gain_of(root, seeds):
    return [score(root / f"lmp-s{seed}") - score(root / f"base-s{seed}") for seed in seeds]


def test_the_answer_with_seeds(root):
    mean, low, high = (100 * value for value in interval(gain_of(root, (0, 1, 2))))
    chance = ", so the difference may be chance" if low <= 0 <= high else ""
    assert answer(statistics_of(root)) == (
        f"lmp is {mean:.1f} mIoU points better than base; "
        f"95 % interval over 3 seeds: {low:+.1f} to {high:+.1f} points{chance}."
    )
    assert answer(statistics_of(root, baseline="lmp")).startswith(f"base is {mean:.1f} mIoU points worse than lmp; ")


def test_the_answer_with_seeds_and_images_covers_both(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    statistics = statistics_of(root, source="test")
    joint = statistics.image_intervals(statistics.comparison.others[0]).joint
    ends = f"{100 * joint.low:+.1f} to {100 * joint.high:+.1f}"
    assert f"; 95 % interval over 2 seeds and the images: {ends} points" in answer(statistics)


def test_the_answer_with_one_seed(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False)
    (gain,) = gain_of(root, (0,))
    assert (
        answer(statistics_of(root))
        == f"lmp is {100 * gain:.1f} mIoU points better than base; one seed, so no interval."
    )
    write_lab_run(root / "focal", lab_config("focal"), level=0.1, previews=False)
    assert answer(statistics_of(root)).startswith(
        f"lmp, the best of 2 variants, is {100 * gain:.1f} mIoU points better"
    )


def test_the_answer_without_a_shared_seed_or_another_variant(tmp_path):
    write_lab_run(tmp_path / "lmp-s0", lab_config("lmp"), previews=False)
    alone = f"lmp reaches {100 * score(tmp_path / 'lmp-s0'):.1f} % mIoU; no other variant was run to compare it with."
    assert answer(statistics_of(tmp_path)) == alone
    write_lab_run(tmp_path / "base-s1", lab_config("base", 1), previews=False)
    assert "they share no seed" in answer(statistics_of(tmp_path))


def test_tests_are_paired_and_corrected_together(tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1, 2), previews=False)
    for seed in (0, 1, 2):
        write_lab_run(root / f"focal-s{seed}", lab_config("focal", seed), level=0.3, previews=False)
    table = tables(root, "tests")["tests"]
    found = rows(table)
    by_method = {name: [score(root / f"{name}-s{seed}") for seed in (0, 1, 2)] for name in ("base", "lmp", "focal")}
    p_values = {name: stats.ttest_rel(by_method[name], by_method["base"]).pvalue for name in ("lmp", "focal")}
    smaller = min(p_values, key=p_values.get)
    for name, p_value in p_values.items():
        corrected = 2 * p_values[smaller] if name == smaller else max(2 * p_values[smaller], p_value)
        assert float(found[name]["p"]) == pytest.approx(p_value)
        assert float(found[name]["p, corrected"]) == pytest.approx(min(corrected, 1))
    assert "2 tests, corrected by Holm's method" in " ".join(table.notes)


def test_the_gain_of_each_seed_at_each_checkpoint(tmp_path):
    """With several checkpoints a row each; a seed that only one of the two has is missing."""
    root = write_lab(tmp_path, previews=False)
    write_lab_run(root / "focal-s1", lab_config("focal", 1), level=0.3, previews=False)
    write_lab_run(root / "focal-s7", lab_config("focal", 7), level=0.3, previews=False)
    table = tables(root, "seeds")["seeds"]
    found = rows(table)
    assert list(found) == [f"{name}, checkpoint {step}" for name in ("focal", "lmp") for step in STEPS]
    for name, seeds in (("focal", (1,)), ("lmp", (0, 1, 2))):
        for step in STEPS:
            row = found[f"{name}, checkpoint {step}"]
            scores = {s: [lines(root / f"{each}-s{s}")[step]["miou"] for each in (name, "base")] for s in seeds}
            gains = {f"seed {s}": 100 * (ours - theirs) for s, (ours, theirs) in scores.items()}
            assert {column: float(cell) for column, cell in row.items() if cell} == pytest.approx(
                gains | {"Mean": sum(gains.values()) / len(gains)}
            )
    assert table.notes[-1].endswith("validation in training, checkpoints 40, 50, 60.")
    one = rows(tables(root, "seeds", steps=(60,))["seeds"])
    assert one == {name: found[f"{name}, checkpoint 60"] for name in ("focal", "lmp")}


def test_no_gain_of_a_seed_that_is_not_shared(tmp_path):
    write_lab_run(tmp_path / "base", lab_config("base", 0), previews=False)
    write_lab_run(tmp_path / "lmp", lab_config("lmp", 1), previews=False)
    with pytest.raises(UserError, match="make no table 'seeds': no variant shares a seed with the baseline"):
        tables(tmp_path, "seeds")


def test_worst(root):
    """Δ·C/k points each: then the mean over C classes has gained Δ."""
    found = rows(tables(root, "worst")["worst"])
    gain = sum(score(root / f"lmp-s{s}") - score(root / f"base-s{s}") for s in (0, 1, 2)) / 3
    assert list(found) == ["1", "2", "3", "5"]
    for k, row in found.items():
        assert float(row["lmp"]) * int(k) / 5 == pytest.approx(100 * gain)
    by_class = {
        info.name: sum(score(root / f"base-s{s}", lambda e, i=place: e["iou"][i]) for s in (0, 1, 2))
        for place, info in enumerate(CLASSES)
    }
    assert [row["the k-th worst"] for row in found.values()] == [
        sorted(by_class, key=by_class.get)[k - 1] for k in (1, 2, 3, 5)
    ]


def test_the_papers_question_with_the_papers_numbers():
    assert needed_per_class(75.06 - 72.55, 19, 7) == pytest.approx(6.8129, abs=1e-4)
    assert needed_per_class(75.06 - 72.55, 19, 10) == pytest.approx(4.769, abs=1e-4)


def test_convergence(root):
    found = rows(tables(root, "convergence")["convergence"])

    def curve(method):
        seeds = [lines(root / f"{method}-s{seed}") for seed in (0, 1, 2)]
        return {step: sum(seed[step]["miou"] for seed in seeds) / 3 for step in range(10, 61, 10)}

    level = curve("base")[60]
    expected = next(step for step, miou in curve("lmp").items() if miou >= level)
    assert found["lmp"]["first step"] == str(expected)
    assert float(found["lmp"]["faster than base"]) == pytest.approx(60 / expected)
    assert found["base"]["first step"] == "60"
    assert float(found["base"]["faster than base"]) == 1
    assert float(found["lmp"]["final mIoU"]) == pytest.approx(100 * curve("lmp")[60])


def test_the_baseline_is_as_fast_as_itself(tmp_path):
    """Also where its curve was at its end's height before, and fell."""
    write_lab(tmp_path, previews=False, seeds=(0,))
    path = tmp_path / "base-s0/metrics.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    end = next(entry["miou"] for entry in entries if (entry["step"], entry["split"]) == (60, "val"))
    changed = [{**entry, "miou": end} if (entry["step"], entry["split"]) == (40, "val") else entry for entry in entries]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in changed))
    found = rows(tables(tmp_path, "convergence")["convergence"])
    assert (found["base"]["first step"], float(found["base"]["faster than base"])) == ("40", 1)
    assert float(found["lmp"]["faster than base"]) == pytest.approx(40 / int(found["lmp"]["first step"]))


@pytest.mark.parametrize(("every", "factor"), [(10, "2"), (30, "")])
def test_few_validations_make_no_factor(tmp_path, every, factor):
    """Of validations at 30 and 60, the first may stand for any step up to 30: that is not twice as fast."""
    for method, reached in (("base", 60), ("lmp", 30)):
        folder = write_lab_run(tmp_path / method, lab_config(method), previews=False)
        entries = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
        kept = [
            {**entry, "miou": 0.5 if entry["step"] >= reached else 0.1}
            for entry in entries
            if entry["split"] == "val" and entry["step"] % every == 0
        ]
        spaced = kept if every == 30 else [*kept, {**kept[2], "step": 25, "miou": 0.1}]
        folder.metrics.write_text(
            "".join(json.dumps(entry) + "\n" for entry in sorted(spaced, key=lambda e: e["step"]))
        )
    table = tables(tmp_path, "convergence", steps=(60,))["convergence"]
    found = rows(table)
    assert (found["lmp"]["first step"], found["base"]["faster than base"]) == ("30", "1.0")
    assert found["lmp"]["faster than base"].removesuffix(".0") == factor
    assert ("too far apart" in table.notes[-1]) == (factor == "")


def test_convergence_that_never_comes(tmp_path):
    write_lab_run(tmp_path / "base", lab_config("base"), level=0.5, previews=False)
    write_lab_run(tmp_path / "lmp", lab_config("lmp"), level=0.1, previews=False)
    table = tables(tmp_path, "convergence")["convergence"]
    assert table.rows[1][2].text == "never"


def test_looks(root):
    found = rows(tables(root, "looks")["looks"])
    assert list(found) == list(LOOKS)
    for look in LOOKS:
        mean = {
            method: sum(score(root / f"{method}-s{s}", lambda e, k=look: e["recall_per_look"][k]) for s in (0, 1, 2))
            / 3
            for method in ("base", "lmp")
        }
        assert float(found[look]["lmp"]) == pytest.approx(100 * mean["lmp"])
        assert float(found[look]["Δ lmp"]) == pytest.approx(100 * (mean["lmp"] - mean["base"]))


def test_rare_classes(root):
    (sentence,) = rare_classes(statistics_of(root))
    rare = [place for place, pixels in enumerate(PIXELS) if pixels < 0.01 * sum(PIXELS)]
    assert len(rare) == 3
    gains = [
        sum(score(root / f"lmp-s{s}", lambda e, i=place: e["iou"][i]) for s in (0, 1, 2)) / 3
        - sum(score(root / f"base-s{s}", lambda e, i=place: e["iou"][i]) for s in (0, 1, 2)) / 3
        for place in rare
    ]
    better, of, worse, mean = re.search(r"on (\d) of (\d) and worse on (\d), by (\S+) points", sentence).groups()
    assert (int(better), int(of), int(worse)) == (sum(gain > 0 for gain in gains), 3, sum(gain < 0 for gain in gains))
    assert float(mean) == pytest.approx(100 * sum(gains) / 3, abs=0.005)

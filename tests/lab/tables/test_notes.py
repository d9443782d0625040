"""What a table claims: no more than its intervals hold, and nothing of runs that failed."""

import json

from lab_runs import lab_config, write_lab, write_lab_evaluation, write_lab_run
from lab_tables import rows, tables


def write_evaluated(root, method, level, seeds=(0, 1, 2)):
    for seed in seeds:
        config = lab_config(method, seed)
        folder = write_lab_run(root / f"{method}-s{seed}", config, level=level, previews=False)
        write_lab_evaluation(folder, config, level=level)


def test_what_may_be_claimed(tmp_path):
    for method, level in (("base", 0.5), ("lmp", 0.8), ("focal", 0.2), ("base_plus", 0.5)):
        write_evaluated(tmp_path, method, level)
    write_evaluated(tmp_path, "bootstrapping", 0.8, seeds=(0,))  # without an interval over seeds nothing is claimed
    table = tables(tmp_path, "methods", source="test")["methods"]
    found = rows(table)
    for label, decided in (("lmp", True), ("focal", True), ("base_plus", False)):
        ends = [
            float(found[label][f"95 % interval over {what}, {end}"])
            for what in ("seeds", "images")
            for end in ("low", "high")
        ]
        assert (min(ends) > 0 or max(ends) < 0) == decided
    assert table.notes[-1] == (
        "Against base, by all three intervals (95 %, uncorrected). "
        "Better: lmp. Worse: focal. Undecided: base_plus. Without the intervals: bootstrapping."
    )
    claim = tables(tmp_path, "methods")["methods"].notes[-1]
    assert claim.startswith("Against base, by the interval over seeds (95 %, uncorrected). Better: lmp.")


def test_one_seed_claims_nothing(tmp_path):
    write_lab(tmp_path, seeds=(0,), evaluated=(60,), previews=False)
    for source in ("validation", "test"):
        notes = tables(tmp_path, "methods", source=source)["methods"].notes
        assert not any("Against base" in note for note in notes)
    assert "It does not cover retraining" in notes[-1]


def test_one_interval_alone_claims_nothing(tmp_path):
    """Over images the networks are certain to differ, over seeds they are not."""
    for seed, level in enumerate((0.2, 0.5, 0.95)):
        for method, own in (("base", 0.45), ("lmp", level)):
            config = lab_config(method, seed)
            folder = write_lab_run(tmp_path / f"{method}-s{seed}", config, previews=False)
            write_lab_evaluation(folder, config, level=own)
    table = tables(tmp_path, "methods", source="test")["methods"]
    assert float(rows(table)["lmp"]["95 % interval over images, low"]) > 0
    assert float(rows(table)["lmp"]["95 % interval over seeds, low"]) < 0
    assert table.notes[-1].endswith("uncorrected). Undecided: lmp.")
    assert any(note.startswith("Where the last interval equals the seed interval") for note in table.notes)


def test_seeds_that_are_alike_do_not_hide_the_images(tmp_path):
    write_lab(tmp_path, seeds=(0, 1), evaluated=(60,), previews=False)
    for method in ("base", "lmp"):
        (first,) = (tmp_path / f"{method}-s0").glob("evaluation-*.json")
        (tmp_path / f"{method}-s1" / first.name).write_bytes(first.read_bytes())
    notes = tables(tmp_path, "methods", source="test")["methods"].notes
    assert any("The last interval covers both together. None covers" in note for note in notes)
    by_class = tables(tmp_path, "classes", source="test")["classes"].notes
    assert any("resampling the evaluated images" in note and "Neither covers" in note for note in by_class)
    assert not any(note.startswith("Where the last interval") for note in notes)


def test_runs_that_are_not_finished_are_named(tmp_path):
    write_lab(tmp_path, previews=False)
    path = tmp_path / "lmp-s2/run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "running"}))
    for table in tables(tmp_path).values():
        assert "Not finished, and so scored before the end: lmp (seed 2)." in table.notes


def test_runs_that_failed_are_named(tmp_path, command):
    write_lab(tmp_path / "runs", previews=False)
    path = tmp_path / "runs/lmp-s2/run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "failed", "step": 33}))
    made = tables(tmp_path / "runs")
    assert rows(made["methods"])["lmp"]["seeds"] == "2"
    for table in made.values():
        assert "Failed, and so without a score: lmp (seed 2, after step 33)." in table.notes
    code, _, reported = command("lab", "table", tmp_path / "runs")
    assert code == 0
    assert "left out, because it failed: lmp (seed 2, after step 33)" in reported

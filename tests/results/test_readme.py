"""The README's table of results: every number recomputed from the files of the runs."""

import json
import math
import re
import statistics

import pytest

from lab_runs import IMAGES, lab_config, write_lab, write_lab_evaluation, write_lab_run
from plain_bootstrap import LAB_BLOCKS, plain_intervals, plain_scores, stored_counts
from result_scripts import refused, script

readme = script("readme")
STUDENT = 4.302652729749464  # the 97.5 % quantile with two degrees of freedom, from printed tables
TEXT = f"# Title\n\nBefore.\n\n{readme.BEGIN}\n\nold\n\n{readme.END}\n\nAfter.\n"


@pytest.fixture
def lab(tmp_path):
    return write_lab(tmp_path / "lab", evaluated=(60,), previews=False)


def validation(run, step):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return next(line["miou"] for line in lines if (line["split"], line["step"]) == ("val", step))


def shown(scores):
    return f"{100 * statistics.mean(scores):.2f} ± {100 * statistics.stdev(scores):.2f}"


@pytest.fixture
def document(tmp_path):
    (tmp_path / "README.md").write_text(TEXT, encoding="utf-8")
    return tmp_path / "README.md"


def test_every_number(lab, document):
    readme.main([], lab, document)
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"# Title\n\nBefore.\n\n{readme.BEGIN}\n\n**mIoU in %")
    assert text.endswith(f"\n\n{readme.END}\n\nAfter.\n")
    cells = {row[0]: row[1:] for row in (re.split(r" *\| *", line)[1:-1] for line in text.splitlines()) if row}
    sides = {}
    for method in ("base", "lmp"):
        runs = [lab / f"{method}-s{seed}" for seed in (0, 1, 2)]
        sides[method] = [stored_counts(run) for run in runs]
        val = [validation(run, 60) for run in runs]
        test = [plain_scores(run[0], range(len(IMAGES)))[1] for run in sides[method]]
        assert cells[method][:3] == ["3", shown(val), shown(test)]
    gains = [
        100 * (plain_scores(ours[0], range(70))[1] - plain_scores(theirs[0], range(70))[1])
        for ours, theirs in zip(sides["lmp"], sides["base"], strict=True)
    ]
    mean, reach = statistics.mean(gains), STUDENT * statistics.stdev(gains) / math.sqrt(3)
    low, high = (100 * end for end in plain_intervals(sides["lmp"], sides["base"], LAB_BLOCKS)[0])
    assert cells["lmp"][3:] == [
        f"{mean:+.2f}",
        f"{mean - reach:+.2f} … {mean + reach:+.2f}",
        f"{low:+.2f} … {high:+.2f}",
    ]
    assert cells["base"][3:] == ["–", "–", "–"]
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 100


def test_check(lab, document):
    told = refused(readme.main, "--check", runs=lab, document=document)
    assert "does not show the runs" in told
    assert document.read_text(encoding="utf-8") == TEXT
    readme.main([], lab, document)
    readme.main(["--check"], lab, document)
    once = document.read_bytes()
    readme.main([], lab, document)
    assert document.read_bytes() == once
    config = lab_config("focal")
    write_lab_evaluation(write_lab_run(lab / "focal", config, previews=False), config, level=0.4)
    assert "does not show the runs" in refused(readme.main, "--check", runs=lab, document=document)


def test_val_is_of_the_checkpoints_that_test_is_of(tmp_path, document):
    config = lab_config("base")
    write_lab_evaluation(write_lab_run(tmp_path / "lab/a", config, previews=False), config, level=0.4, steps=(20, 30))
    readme.main([], tmp_path / "lab", document)
    scores = [validation(tmp_path / "lab/a", step) for step in (20, 30)]
    assert f"| base | 1 | {shown(scores)} |" in document.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["nothing", readme.BEGIN + "\n", f"{readme.END}\n{readme.BEGIN}\n"])
def test_a_document_without_markers(lab, document, text):
    document.write_text(text)
    assert "lacks the lines" in refused(readme.main, runs=lab, document=document)
    assert document.read_text() == text


def test_without_an_evaluation(lab, document):
    (lab / "lmp-s0/evaluation-test-none-60.json").unlink()
    assert "no evaluation begins with 'test'" in refused(readme.main, runs=lab, document=document)
    assert document.read_text(encoding="utf-8") == TEXT


@pytest.mark.skipif(not readme.RUNS.is_dir(), reason="no results are published yet")
def test_the_readme_shows_the_published_runs():
    readme.main(["--check"])

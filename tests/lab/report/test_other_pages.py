"""The report of other runs than the usual ones: poor, failed, many, scored in other ways."""

import json

import pytest

from browser import column, marks, opened
from lab_runs import CLASSES, lab_config, statistics_of, without_validation, write_lab, write_lab_run
from losspool.lab.comparison import read_statistics
from losspool.lab.report import write_report
from losspool.segmentation.data.protocol import ClassInfo

DATA = "JSON.parse(document.getElementById('data').textContent)"


def test_poor_data_makes_a_page_too(chromium, tmp_path):
    classes = tuple(ClassInfo(f"class {index}", (index, index, index)) for index in range(23))
    write_lab_run(tmp_path / "runs" / "only", lab_config("lmp"), classes=classes, previews=False, absent=3)
    metrics = tmp_path / "runs" / "only" / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"recall_per_look"', '"other"'))
    path = write_report(statistics_of(tmp_path / "runs", steps=(60,)), tmp_path / "report.html")
    with opened(chromium, path) as found:
        shown = found.page.locator("main > section").evaluate_all("nodes => nodes.map((node) => node.id)")
        assert shown == ["scores", "classes", "curves", "sampling", "pooling", "panel", "compared"]
        assert column(found.page, "class-table", 3)[3] == "–"
        assert found.page.locator("#mass-chart-b").count() == 0
        assert marks(found.page, "class-chart") == 22
        assert (found.requests, found.complaints) == ([], [])


def test_intervals_over_images_stand_beside_those_over_seeds(chromium, tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    path = write_report(statistics_of(root, source="test"), tmp_path / "report.html")
    with opened(chromium, path) as found:
        lmp = found.page.evaluate("JSON.parse(document.getElementById('data').textContent).variants[1]")
        for place, key in ((5, "gain"), (6, "over_images"), (7, "over_both")):
            ends = ", ".join(f"{100 * lmp[key][end]:+.2f}" for end in ("low", "high"))
            assert column(found.page, "scores-table", place) == ["–", f"[{ends}]"]
        assert "resampling the images" in found.page.locator("#scores-notes").inner_text()
        bars = gain_bars(found.page)
        ends = [[100 * lmp[key][end] for end in ("low", "high")] for key in ("gain", "over_images", "over_both")]
        assert bars == [pytest.approx(each) for each in ends]
        plot = "document.querySelector('#gain-chart .plot').data"
        thickness = found.page.evaluate(f"{plot}.map((trace) => trace.error_x.thickness)")
        assert thickness[2] > thickness[0] == thickness[1]
        both = ", ".join(f"{end:+.2f}" for end in ends[2])
        assert f"over both [{both}]" in found.page.evaluate(f"{plot}[2].hovertext[0]").replace("−", "-")
        caption = found.page.locator("#gain-chart figcaption").inner_text()
        assert ": thick over both, thin over seeds and images" in caption
        low, high = gain_axis(found.page)
        assert low < min(0, *map(min, bars)) <= max(0, *map(max, bars)) < high
        assert (found.requests, found.complaints) == ([], [])


def test_runs_that_were_trained_without_validation(tmp_path, command):
    root = without_validation(write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False))
    report = ("lab", "report", root, "--out", tmp_path / "report.html")
    code, _, error = command(*report)
    assert code == 2
    advice = f"run losspool evaluate {root / 'base-s0'} --split test, and pass --scores test"
    assert f"left out: {root / 'base-s0'} was trained without validation; {advice}\n" in error
    for words in (report, ("lab", "table", root)):
        code, _, error = command(*words, "--scores", "test")
        assert (code, error) == (0, "")


def test_a_page_of_runs_without_validation(chromium, tmp_path):
    root = without_validation(write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False))
    path = write_report(read_statistics([root], scores="test"), tmp_path / "report.html")
    with opened(chromium, path) as found:
        assert len(gain_bars(found.page)) == 3
        assert found.page.locator("#miou-chart").count() == 0
        assert (found.requests, found.complaints) == ([], [])


def gain_bars(page):
    """The ends of every bar that the chart of gains was asked to draw."""
    traces = page.evaluate("document.querySelector('#gain-chart .plot').data")
    bars = [(trace["x"][0], trace.get("error_x")) for trace in traces]
    return [[x - bar["arrayminus"][0], x + bar["array"][0]] for x, bar in bars if bar]


def gain_axis(page):
    return page.evaluate("document.querySelector('#gain-chart .plot').layout.xaxis.range")


@pytest.mark.parametrize(("steps", "words"), [((40, 50, 60), "the faint bar is the ±"), ((60,), "it may be chance")])
def test_a_gain_without_an_interval_does_not_look_certain(chromium, tmp_path, steps, words):
    root = write_lab(tmp_path / "runs", seeds=(0,), previews=False)
    path = write_report(statistics_of(root, steps=steps), tmp_path / "report.html")
    with opened(chromium, path) as found:
        lmp = found.page.evaluate("JSON.parse(document.getElementById('data').textContent).variants[1]")
        assert words in found.page.locator("#gain-chart figcaption").inner_text()
        gain, std = 100 * lmp["gain"]["mean"], lmp["score"]["std"]
        expected = [] if std is None else [pytest.approx([gain - 100 * std, gain + 100 * std])]
        assert gain_bars(found.page) == expected
        low, high = gain_axis(found.page)
        assert low < 0
        assert high - low >= 2
        assert (found.requests, found.complaints) == ([], [])


def test_other_scores_and_confusion(chromium, tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), evaluated=(60,), previews=False)
    path = write_report(statistics_of(root, source="test"), tmp_path / "report.html")
    with opened(chromium, path) as found:
        page = found.page
        variants = page.evaluate("JSON.parse(document.getElementById('data').textContent).variants")
        assert page.locator("#metrics option").all_inner_texts() == [
            "Dice", "precision", "recall", "IoU per image", "Dice per image",
        ]  # fmt: skip
        page.locator("#metrics select").select_option(label="recall")
        assert column(page, "metrics-table", 1) == [*(info.name for info in CLASSES), "mean"]
        for place, variant in enumerate(variants, start=2):
            scores = variant["metrics"]["recall"]
            shown = [f"{100 * score['mean']:.2f} ± {100 * score['std']:.2f}" for score in scores]
            assert column(page, "metrics-table", place) == shown
        page.locator("#confusion select").select_option(label="lmp")
        for place in range(len(CLASSES)):
            shown = [f"{100 * row[place]:.1f}" for row in variants[1]["confusion"]]
            assert column(page, "confusion-table", place + 2) == shown
        assert (found.requests, found.complaints) == ([], [])


def test_a_run_that_failed_is_named(chromium, tmp_path):
    root = write_lab(tmp_path / "runs", seeds=(0, 1), previews=False)
    path = root / "lmp-s1/run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "failed", "step": 33}))
    page = write_report(statistics_of(root), tmp_path / "report.html")
    with opened(chromium, page) as found:
        reported = found.page.locator("#scores-notes").inner_text()
        assert "Failed, and so without a score: lmp (seed 1, after step 33)." in reported
        assert column(found.page, "scores-table", 2) == ["2", "1"]
        assert (found.requests, found.complaints) == ([], [])


def test_many_variants_without_a_common_seed(chromium, tmp_path):
    for place in range(9):
        write_lab_run(tmp_path / "runs" / f"{place}", lab_config("lmp", place, p=1 + place / 10))
    path = write_report(statistics_of(tmp_path / "runs"), tmp_path / "report.html")
    with opened(chromium, path, width=390) as found:
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert column(found.page, "scores-table", 4) == ["–"] * 9
        assert found.page.locator("#gain-chart").count() == 0
        assert "the best 7 other variants" in found.page.locator("#previews").inner_text()
        scores = [float(text.split()[0]) for text in column(found.page, "scores-table", 3)]
        best = max(range(1, 9), key=lambda place: scores[place])  # the first is the baseline
        assert found.page.locator("#pixels select").input_value() == str(best - 1)
        shown = found.page.locator("#class-chart .legend button[aria-pressed=true]").all_inner_texts()
        first = {0, *sorted(range(1, 9), key=lambda place: -scores[place])[:4]}
        assert {text.strip() for text in shown} == {f"lmp, p = {1 + place / 10:g}" for place in first}
        found.page.locator("#pixels select").select_option(label="lmp, p = 1.8")
        assert found.page.locator("#class-chart .legend button[aria-pressed=false]").count() == 4
        assert (found.requests, found.complaints) == ([], [])

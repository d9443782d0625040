"""The report as its reader meets it, in a real browser: drawn, driven by mouse and keyboard, silent on the network."""

import math

import numpy as np
import pytest
import torch

import losspool
from browser import column, marks, opened
from lab_runs import CLASSES, statistics_of, write_lab
from losspool.lab.report import write_report
from losspool.segmentation.data.protocol import ClassInfo

DATA = "JSON.parse(document.getElementById('data').textContent)"
WILD = "<script>alert(1)</script>"
CHARTS = {
    "gain-chart": 1,
    "class-chart": 10,
    "pixels-chart": 5,
    "miou-chart": 2,
    "loss-chart": 2,
    "running-chart": 4,
    "probability-chart": 4,
    "alpha-chart": 2,
    "saturated-chart": 2,
    "mass-chart-a": 30,
    "mass-chart-b": 30,
    "panel-chart": 2,
}
"""Each with the least number of marks that it must have: points, lines or bars."""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    classes = (*CLASSES[:3], ClassInfo("<b>bold", (220, 220, 0)), ClassInfo(WILD, (255, 0, 0)))
    write_lab(root / "runs", classes=classes)
    return write_report(statistics_of(root / "runs"), root / "report.html")


@pytest.fixture(scope="module")
def page(chromium, report):
    """Shared, because loading takes longer than most tests: each sets what it needs."""
    with opened(chromium, report, offline=True) as found:
        yield found.page
        assert found.requests == []
        assert found.complaints == []


def drawn(page, chart: str) -> str:
    return page.evaluate(f"document.querySelector('#{chart} .js-line').getAttribute('d')")


def move(page, slider: str, key: str, times: int = 1) -> None:
    page.locator(slider).focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_the_page_opens_with_the_answer_and_the_pictures(page):
    assert page.locator("header .answer").inner_text() == page.evaluate(f"{DATA}.answer")
    page.evaluate("scrollTo(0, 0)")
    bottoms = page.locator(".viewer figure").evaluate_all("nodes => nodes.map((n) => n.getBoundingClientRect().bottom)")
    assert len(bottoms) == 6
    assert page.locator("nav").bounding_box()["y"] > max(bottoms)
    assert min(bottoms) < 900  # the first row of pictures is on the first screen


def test_every_chart_is_drawn(page):
    figures = page.locator("figure:has(.plot)").evaluate_all("nodes => nodes.map((node) => node.id)")
    assert sorted(figures) == sorted(CHARTS)
    for chart, least in CHARTS.items():
        assert marks(page, chart) >= least, chart
        assert page.locator(f"#{chart} .plot").get_attribute("aria-label")


def test_numbers_of_the_table_are_the_data(page):
    rows = page.evaluate("JSON.parse(document.getElementById('data').textContent).variants")
    shown = column(page, "scores-table", 3)
    for row, text in zip(rows, shown, strict=True):
        assert text == f"{100 * row['score']['mean']:.2f} ± {100 * row['score']['std']:.2f}"
    gain = rows[1]["gain"]
    assert column(page, "scores-table", 4) == ["–", f"{100 * gain['mean']:+.2f}"]
    assert column(page, "scores-table", 5)[1] == f"[{100 * gain['low']:+.2f}, {100 * gain['high']:+.2f}]"


def test_names_stay_text_in_tables_and_charts(page):
    assert WILD in column(page, "class-table", 1)
    assert WILD in page.locator("#class-chart svg text").all_text_contents()
    for chart in ("class-chart", "pixels-chart"):
        assert "<b>bold" in page.locator(f"#{chart} svg text").all_text_contents()
    assert page.locator("figure svg :is(b, script, a)").count() == 0
    page.locator("#pixels-chart").scroll_into_view_if_needed()
    box = page.evaluate(
        """() => [...document.querySelectorAll('#pixels-chart .point')].map((p) => p.getBoundingClientRect())
             .map(({x, y, width, height}) => [x + width / 2, y + height / 2])[4]"""
    )
    page.mouse.move(*box)
    page.wait_for_selector("#pixels-chart .hovertext")
    hover = page.locator("#pixels-chart .hovertext").text_content()
    assert WILD in hover
    assert "400 pixels" in hover


def test_columns_sort_by_click_and_by_key(page):
    head = page.locator("#class-table thead th")
    head.nth(1).get_by_role("button").click()
    assert head.nth(1).get_attribute("aria-sort") == "descending"
    assert column(page, "class-table", 2) == ["400,000", "350,000", "6,000", "1,500", "400"]
    first = page.locator("#class-chart .ytick text").all_text_contents()
    head.nth(1).get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert head.nth(1).get_attribute("aria-sort") == "ascending"
    assert column(page, "class-table", 2) == ["400", "1,500", "6,000", "350,000", "400,000"]
    assert page.locator("#class-chart .ytick text").all_text_contents() == first[::-1]
    head.nth(0).get_by_role("button").focus()
    page.keyboard.press("Space")
    assert head.nth(0).get_attribute("aria-sort") == "ascending"
    assert head.nth(1).get_attribute("aria-sort") == "none"
    assert column(page, "class-table", 1)[-3:] == ["building", "pole", "road"]
    head.nth(4).get_by_role("button").click()
    gains = [float(text.replace("−", "-")) for text in column(page, "class-table", 5)]
    assert gains == sorted(gains, reverse=True)


def test_the_legend_hides_a_variant(page):
    toggle = page.locator("#miou-chart .legend button").first
    before = marks(page, "miou-chart")
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "false"
    assert marks(page, "miou-chart") < before
    page.keyboard.press("Enter")  # the focus stayed on it
    assert toggle.get_attribute("aria-pressed") == "true"
    assert marks(page, "miou-chart") == before


def test_smoothing(page):
    raw, lines = drawn(page, "loss-chart"), page.locator("#loss-chart .js-line").count()
    move(page, "#smoothing", "ArrowRight", 20)
    assert drawn(page, "loss-chart") != raw
    assert page.locator("#loss-chart .js-line").count() == lines + 2  # the raw ones, faint
    move(page, "#smoothing", "Home")
    assert drawn(page, "loss-chart") == raw
    values = page.evaluate("losspoolReport.smoothed([2, null, 4, 1], 0.5)")
    assert values == [2, None, pytest.approx((0.25 * 2 + 0.5 * 4) / 0.75), pytest.approx((0.25 + 1 + 0.5) / 0.875)]


def test_choosers_of_runs_and_classes(page):
    lines = page.locator("#running-chart .js-line")
    before = lines.count()
    page.get_by_role("checkbox", name="building").check()
    assert lines.count() == before + 1
    page.get_by_role("checkbox", name="building").uncheck()
    assert page.locator("#sampling-note").inner_text() == ""
    page.locator("#sampling select").select_option(label="base, seed 1")
    assert "uniformly" in page.locator("#sampling-note").inner_text()
    page.locator("#pooling select").nth(1).select_option(label="lmp, seed 2")
    assert page.locator("#mass-chart-b figcaption").inner_text() == "lmp, seed 2"
    assert page.locator("#alpha-chart .legend").inner_text().split("\n") == ["base, seed 0", "lmp, seed 2"]


def test_the_slider_goes_through_training(page):
    def sources() -> list[str]:
        return page.locator(".viewer img").evaluate_all("images => images.map((image) => image.src)")

    def captions() -> list[str]:
        return page.locator(".viewer figcaption").all_inner_texts()

    last = sources()
    assert len(last) == 8  # image, label, two predictions, two weight maps over the image
    assert captions()[1:3] == ["base, seed 0, step 60", "lmp, seed 0, step 60"]
    move(page, "#preview-step", "ArrowLeft", 2)
    assert captions()[1:3] == ["base, seed 0, step 40", "lmp, seed 0, step 40"]
    now = sources()
    changed = [one != other for one, other in zip(last, now, strict=True)]
    assert changed == [False, True, True, False, False, True, False, True]
    page.get_by_label("Run B", exact=True).first.select_option(label="base, seed 0")
    assert sources()[1] == sources()[2]
    page.get_by_label("Image", exact=True).select_option(label="scene 1")
    assert captions()[0] == "scene 1"
    assert sources()[0] != last[0]
    loaded = page.locator(".viewer img").evaluate_all("images => images.every((i) => i.complete && i.naturalWidth)")
    assert loaded


def test_opacity_of_the_weights(page):
    move(page, "#preview-opacity", "End")
    assert page.locator(".stack .above").first.evaluate("image => getComputedStyle(image).opacity") == "1"
    move(page, "#preview-opacity", "Home")
    assert page.locator(".stack .above").last.evaluate("image => getComputedStyle(image).opacity") == "0"
    assert page.locator(".scale .ticks").inner_text().split() == ["0", "1", "4.0"]


def test_the_panel_recomputes_fig_2(page):
    seen = [drawn(page, "panel-chart")]
    facts = [page.locator("#panel-facts").inner_text()]
    for slider, key in (("#panel-p", "ArrowRight"), ("#panel-m", "ArrowRight"), ("#panel-p", "Home")):
        move(page, slider, key)
        seen.append(drawn(page, "panel-chart"))
        facts.append(page.locator("#panel-facts").inner_text())
    assert len(set(seen)) == len(set(facts)) == 4
    move(page, "#panel-p", "End")
    assert page.locator("label[for=panel-p]").inner_text() == "p: ∞"
    assert "100 of 100" in page.locator("#panel-facts").inner_text()
    weights = page.evaluate("document.querySelector('#panel-chart .plot').data[0].y")
    assert weights == pytest.approx([1.0] * 100)


def losses(random: np.random.Generator, n: int, kind: str) -> np.ndarray:
    made = {
        "exponential": lambda: random.exponential(size=n),
        "ties": lambda: random.integers(0, 4, n) / 2,
        "near ties": lambda: 0.7 * (1 + 2.0**-50 * random.integers(0, 4, n)),
        "zeros": lambda: random.exponential(size=n) * (random.random(n) < 0.3),
        "all zeros": lambda: np.zeros(n),
        "all equal": lambda: np.full(n, 0.3),
        "heavy tails": lambda: np.exp(3 * random.normal(size=n)),
        "heavier tails": lambda: np.exp(6 * random.normal(size=n)),
        "bimodal": lambda: np.where(random.random(n) < 0.5, 1e-6, 10.0) * (1 + 0.01 * random.random(n)),
        "wide": lambda: 10 ** (60 * random.random(n) - 40),
    }
    return made[kind]()


def test_the_pages_solver_agrees_with_the_library(page):
    random = np.random.default_rng(7)
    kinds = ["exponential", "ties", "near ties", "zeros", "all zeros", "all equal"]
    kinds += ["heavy tails", "heavier tails", "bimodal", "wide"]
    norms = [1.0, 1.001, 1.01, 1.1, 1.3, 1.7, 2.0, 3.0, 10.0, math.inf]
    problems, expected = [], []
    for number in range(1000):
        n = int(random.integers(1, 120))
        values = losses(random, n, kinds[number % 10])
        p = norms[number // 10 % 10]
        m = [1, n, int(random.integers(1, n + 1)), float(random.uniform(0.01, 1))][number // 100 % 4]
        weights = losspool.pooling_weights(torch.from_numpy(values)[None], p=p, m=m)[0]
        assert weights.dtype == torch.float64
        expected.append(weights.numpy())
        problems.append([values.tolist(), p, m * n if isinstance(m, float) else m])
    found = page.evaluate("problems => problems.map((each) => losspoolReport.poolingWeights(...each))", problems)
    for problem, ours, theirs in zip(problems, found, expected, strict=True):
        assert np.abs(np.array(ours) - theirs).max() <= 1e-9 * max(theirs.max(), 1e-300), problem


def test_alpha_tau_and_the_saturated_agree_too(page):
    for p, m in ((1.0, 7), (1.3, 25), (2.0, 3), (10.0, 60), (math.inf, 5), (1.7, 100)):
        values = torch.from_numpy(np.random.default_rng(m).exponential(size=100))
        stats = losspool.PoolingStats()
        losspool.max_pool(values[None], p=p, m=m, stats=stats)
        found = page.evaluate("([l, p, m]) => losspoolReport.solvePooling(l, p, m)", [values.tolist(), p, m])
        assert found["alpha"] == pytest.approx(stats.alpha.item(), rel=1e-9)
        assert found["tau"] == pytest.approx(stats.tau.item(), rel=1e-12)
        assert found["saturated"] == stats.saturated.item()


def test_every_control_has_a_name_and_can_be_reached(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('main :is(input, select, button)')]
             .filter((node) => !(node.labels?.[0]?.textContent.trim() || node.textContent.trim()))
             .map((node) => node.outerHTML)"""
    )
    assert unnamed == []
    page.locator(".skip").focus()
    seen = set()
    for _ in range(90):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        if "panel-m" in seen:
            break
    assert {"scroll", "smoothing", "preview-step", "preview-opacity", "panel-p", "panel-m"} <= seen
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_contents_lead_to_sections(page):
    targets = page.locator("nav a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
    shown = page.locator("main > section").evaluate_all("nodes => nodes.map((node) => '#' + node.id)")
    assert ["#previews", *targets] == shown  # the pictures stand above the contents
    assert "#looks" in targets


def test_dark_mode_follows_the_reader(page):
    def colors() -> list[str]:
        return page.evaluate(
            """() => [getComputedStyle(document.documentElement).backgroundColor,
                      getComputedStyle(document.querySelector('#miou-chart .xtick text')).fill,
                      getComputedStyle(document.querySelector('#panel-chart .js-line')).stroke,
                      document.querySelector('#miou-chart .legend line').getAttribute('stroke')]"""
        )

    def followed(color: str) -> None:
        """The last thing to be redrawn has its colour."""
        page.wait_for_function(f"() => document.querySelector('#panel-chart .js-line').style.stroke === '{color}'")

    light = colors()
    page.emulate_media(color_scheme="dark")
    followed("rgb(74, 168, 232)")
    assert all(one != other for one, other in zip(light, colors(), strict=True))
    assert colors()[0] == "rgb(20, 23, 26)"
    page.emulate_media(color_scheme="light")
    followed("rgb(0, 114, 178)")
    assert colors() == light


def test_charts_fit_on_paper(chromium, report):
    with opened(chromium, report, width=1280, color_scheme="dark") as found:
        found.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        widths = found.page.locator(".plot .main-svg").evaluate_all("nodes => nodes.map((node) => node.clientWidth)")
        assert 300 < min(widths) < max(widths) <= 700
        found.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert found.page.locator("#gain-chart .main-svg").first.evaluate("node => node.clientWidth") > 1000
        assert (found.requests, found.complaints) == ([], [])


def test_a_phone_in_the_dark(chromium, report):
    with opened(chromium, report, width=390, has_touch=True, is_mobile=True, color_scheme="dark") as found:
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert found.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 26)"
        widths = found.page.locator(".plot").evaluate_all("nodes => nodes.map((node) => node.scrollWidth)")
        assert max(widths) <= 390
        for chart, least in CHARTS.items():
            assert marks(found.page, chart) >= least, chart
        assert (found.requests, found.complaints) == ([], [])

"""``make images``: the pictures of the README, from the demo's report and from the figures' own code."""

from pathlib import Path

from browser import browser, opened
from losspool.lab.figures import write_figures

ROOT = Path(__file__).parents[2]


def main() -> None:
    images = ROOT / "docs" / "images"
    report = ROOT / "demo" / "report.html"
    with browser() as running, opened(running, report, width=960, color_scheme="light") as found:
        found.page.evaluate("document.querySelector('#previews .controls').remove()")  # a picture has no sliders
        found.page.locator("#previews-body").screenshot(path=images / "report.png")
    for path in (images / "report.png", *write_figures(images, None, ["fig2"])):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

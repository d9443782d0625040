"""``make images``: the pictures of the README, from the demo's report and from the figures' own code."""

from pathlib import Path

from browser import browser, opened
from losspool.lab.figures import write_figures

ROOT = Path(__file__).parents[2]
SECTIONS = ("scores", "pixels", "previews")  # of the page, which is longer than a README should be


def main() -> None:
    images = ROOT / "docs" / "images"
    report = ROOT / "demo" / "report.html"
    with browser() as running, opened(running, report, width=1100, color_scheme="light") as found:
        kept = ", ".join(f"#{section}" for section in SECTIONS)
        found.page.evaluate(f"document.querySelectorAll('section:not({kept})').forEach((each) => each.remove())")
        height = found.page.evaluate("document.documentElement.scrollHeight")
        found.page.set_viewport_size({"width": 1100, "height": height})  # charts are drawn when they come into view
        found.page.wait_for_timeout(2000)
        found.page.screenshot(path=images / "report.png")
    for path in (images / "report.png", *write_figures(images, None, ["fig2"])):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

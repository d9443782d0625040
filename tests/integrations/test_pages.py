"""Every page's Python trains for two steps: at p = ∞ with the framework's own loss, else with a larger one."""

import os

import pytest

from integration_pages import BY_HAND, FOLDER, INSTALLED, TORCH_ONLY, before, check_page, python_of

PAGES = TORCH_ONLY | (INSTALLED if os.environ.get("LOSSPOOL_INTEGRATIONS") == "1" else set())


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_swap_is_the_framework_s_own_loss_at_infinity(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_page(page)


def test_every_page_is_run_somewhere_and_listed():
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert pages == TORCH_ONLY | INSTALLED | BY_HAND
    index = (FOLDER / "README.md").read_text()
    for page in pages:
        code = python_of(page)
        compile(code, page, "exec")
        compile(before(code), page, "exec")
        assert f"]({page}.md)" in index

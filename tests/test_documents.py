"""Every snippet in the README, the docs and the docstrings runs, and every link leads somewhere."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import losspool

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS += sorted(ROOT.glob("benchmarks/*.md")) + sorted(ROOT.glob("results/**/*.md"))


def snippets(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_snippets_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code in snippets(path, "python"):
        exec(compile(code, path.name, "exec"), scope)


def test_the_readme_has_snippets():
    assert snippets(ROOT / "README.md", "python")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_make_targets_exist(path):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for target in re.findall(r"`make ([a-z]+)`|^make ([a-z]+)$", path.read_text(), flags=re.MULTILINE):
        assert set(filter(None, target)) <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


@pytest.mark.parametrize(
    "name", [info.name for info in pkgutil.walk_packages(losspool.__path__, "losspool.") if "__main__" not in info.name]
)
def test_docstring_examples(name):
    if name.startswith("losspool.kernels."):
        pytest.importorskip("triton")
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0

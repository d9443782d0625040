"""Every snippet in the README, the docs and the docstrings runs, and every link leads somewhere."""

import doctest
import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import losspool
from integration_pages import TORCH_ONLY

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS += sorted(ROOT.glob("benchmarks/*.md")) + sorted(ROOT.glob("results/**/*.md"))
INTEGRATIONS = sorted(ROOT.glob("docs/integrations/*.md"))
"""Their Python is run by ``tests/integrations/test_pages.py``: most of it needs other frameworks."""

FRAMEWORKS = {
    "losspool.integrations.huggingface": "transformers",
    "losspool.integrations.lightning": "lightning",
    "losspool.integrations.nnunet": "nnunetv2",
}


def snippets(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_python_snippets_run(path, tmp_path, monkeypatch):
    """Compiled as far as the graph: tests/test_compile.py runs the code that is made of it."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for code in snippets(path, "python"):
        exec(compile(code, path.name, "exec"), scope)


# What a type checker knows of the loss. An ignored error that is not there is an error.
TYPES = """
from typing import assert_type
import torch
from torch import Tensor
import losspool

logits, labels, stats = torch.zeros(1, 2, 3), torch.zeros(1, 3).long(), losspool.PoolingStats()
assert_type(losspool.CrossEntropyLoss([1, 2.5], m="25%")(logits, labels, stats=stats), Tensor)
assert_type(losspool.BCEWithLogitsLoss(pos_weight=2.0)(logits, logits, labels > 0), Tensor)
assert_type(losspool.LossMaxPooling(reduction="pool")(logits), Tensor)
print(stats.alpha.item(), stats.trimmed.sum(), stats.prediction.shape)
losspool.CrossEntropyLoss()(logits)  # type: ignore[call-arg]
losspool.CrossEntropyLoss(scope="pixel")  # type: ignore[arg-type]
losspool.cross_entropy(logits, labels, reduction="sum")  # type: ignore[arg-type]
losspool.max_pool(logits, size_average=True)  # type: ignore[call-arg]
"""


# Beyond pyproject's ``untyped_calls_exclude``. The rest of ``mypy --strict`` holds for every page.
TYPE_EXCEPTIONS = {
    "import-not-found": "frameworks are not installed beside the tests' tools",
    "disallow_subclassing_any": "a class of a framework that is not there may be anything",
}
"""Of the pages of frameworks, each with its reason."""


def snippet_settings(path: Path) -> str:
    """The comment that makes a file as strict as ``mypy --strict``: it undoes what the project's settings undo."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings["strict"]
    relaxed = [name for name, value in settings.items() if value is False]
    needs_framework = path in INTEGRATIONS and path.stem not in TORCH_ONLY
    excepted = TYPE_EXCEPTIONS if needs_framework else {}
    codes = ",".join(name for name in excepted if "-" in name)
    strict = ", ".join(name.replace("_", "-") for name in relaxed if name not in excepted)
    return f"# mypy: {strict}\n" + (f'# mypy: disable-error-code="{codes}"\n' if codes else "")


def test_python_snippets_pass_the_type_checker(tmp_path):
    """Strictly. Quick after ``make types``, whose cache and settings it shares."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *INTEGRATIONS]
    files = {
        f"{'_'.join(path.with_suffix('').parts[-2:])}_snippets.py".replace("-", "_"): snippet_settings(path) + code
        for path in pages
        if (code := "\n".join(snippets(path, "python")))
    }
    assert len(files) > 20
    for name, code in {**files, "types_of_the_loss.py": snippet_settings(pages[0]) + TYPES}.items():
        (tmp_path / name).write_text(code)
    done = type_check(tmp_path)
    assert done.returncode == 0, done.stdout


def type_check(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--config-file", "pyproject.toml", "--cache-dir", ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", *options, *map(str, folder.glob("*.py"))]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


LOOSE = """
import json
from functools import cache
import torch
import losspool

def untyped(x):
    return x

def returns_any() -> int:
    return json.loads("1")

untyped(losspool.max_pool(torch.zeros(1, 2)))
"""


def test_a_loose_snippet_would_be_found(tmp_path):
    (tmp_path / "loose_snippets.py").write_text(snippet_settings(ROOT / "README.md") + LOOSE)
    found = type_check(tmp_path).stdout
    assert all(code in found for code in ("[no-untyped-def]", "[no-any-return]", "[no-untyped-call]"))


def test_the_readme_has_snippets():
    assert snippets(ROOT / "README.md", "python")


@pytest.mark.parametrize("path", DOCUMENTS + INTEGRATIONS, ids=lambda path: path.name)
def test_make_targets_exist(path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for target in re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)$", path.read_text(), flags=re.MULTILINE):
        assert set(filter(None, target)) <= targets


@pytest.mark.parametrize("path", DOCUMENTS + INTEGRATIONS, ids=lambda path: path.name)
def test_relative_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text()):
        if not target.startswith("http"):
            page = path.parent / target if target else path
            assert page.exists(), f"{path.name} links to {target}"
            assert not anchor or anchor in anchors(page), f"{path.name} links to {target}#{anchor}"


def anchors(path: Path) -> set[str]:
    """Of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_release_has_one_number():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    listed = re.search(r"^## \[(\d.+)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert cited is not None
    assert listed is not None
    assert losspool.__version__ == cited[1] == listed[1]


def test_pictures_of_the_documentation_are_current(tmp_path, monkeypatch):
    """Nearly: another version of matplotlib may place a line a little differently."""
    monkeypatch.setattr("sys.argv", ["figures.py", "--out", str(tmp_path)])
    runpy.run_path(str(ROOT / "docs/figures.py"), run_name="__main__")
    written = sorted(tmp_path.iterdir())
    assert written
    for drawn in written:
        published = ROOT / "docs/images" / drawn.name
        if drawn.suffix == ".png":
            pictures = [np.asarray(Image.open(path).convert("RGB"), dtype=np.float64) for path in (drawn, published)]
            assert pictures[0].shape == pictures[1].shape
            assert np.abs(pictures[0] - pictures[1]).mean() < 2
        else:
            words = [re.findall(r">([^<>]+)</text>", path.read_text()) for path in (drawn, published)]
            assert words[0] == words[1]


@pytest.mark.parametrize(
    "name", [info.name for info in pkgutil.walk_packages(losspool.__path__, "losspool.") if "__main__" not in info.name]
)
def test_docstring_examples(name):
    if name.startswith("losspool.kernels."):
        pytest.importorskip("triton")
    if name in FRAMEWORKS:
        pytest.importorskip(FRAMEWORKS[name])
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0

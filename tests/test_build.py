"""A package that is built knows the commit that it is built from."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")


def git(folder, *words):
    return subprocess.run([*GIT, "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("state", ["clean", "changed", "another project's"])
def test_the_commit_is_stored(tmp_path, state):
    """A small copy: the real package would take longer, and git may be missing from where the tests lie."""
    source = tmp_path / "repository"
    (source / "src/losspool").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    for name in ("__init__.py", "_version.py"):
        shutil.copy(ROOT / "src/losspool" / name, source / "src/losspool" / name)
    git(tmp_path, "init", "--quiet", source)
    if state != "another project's":
        git(source, "add", ".")
    git(source, "commit", "--quiet", "--allow-empty", "--message", "a commit")
    if state == "changed":
        (source / "src/losspool/__init__.py").write_text("")
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", tmp_path / "built"],
        cwd=source,
        check=True,
        capture_output=True,
    )
    stored = tmp_path / "built/losspool/_commit.txt"
    head = git(source, "rev-parse", "HEAD")
    expected = {"clean": f"{head}\n", "changed": f"{head}+\n"}.get(state)
    assert (stored.read_text() if stored.exists() else None) == expected

"""Stores the commit that a package is built from. Everything else is in pyproject.toml."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


def git(*arguments: str) -> str:
    """The output of git in this folder; empty if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class BuildWithCommit(build_py):
    """Writes ``_commit.txt``, which ``run.json`` and evaluations quote where there is no git history."""

    def run(self) -> None:
        super().run()
        # Not the commit of another project, in whose folder this one may lie.
        commit = (
            git("describe", "--always", "--abbrev=40", "--dirty=+", "--match=") if git("ls-files", "setup.py") else ""
        )
        if commit and not self.editable_mode:
            Path(self.build_lib, "losspool", "_commit.txt").write_text(f"{commit}\n", encoding="ascii")


setup(cmdclass={"build_py": BuildWithCommit})

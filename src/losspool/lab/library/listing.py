"""The grids that come with the package, and ``losspool recipes``, which lists them beside the recipes.

Beside the grids, whose folder it reads, as ``config/library`` is beside the recipes.
"""

from __future__ import annotations

from pathlib import Path

from losspool.segmentation.base import Library
from losspool.segmentation.config import RECIPES

GRIDS = Library("grid", Path(__file__).parent)


def report_recipes() -> None:
    """``losspool recipes``: print the name and the first line of each recipe and grid."""
    for library, command in ((RECIPES, "train"), (GRIDS, "lab run")):
        width = max(map(len, library.files))
        print(f"losspool {command} …")
        print("".join(f"  {name:{width}}  {line}\n" for name, line in library.lines().items()))


def report_recipe(name: str) -> None:
    """``losspool recipes show``: print a recipe or grid."""
    path = Library("recipe or grid", *RECIPES.folders, *GRIDS.folders).find(name)
    # A recipe names its JSON schema relative to its own folder.
    print(path.read_text(encoding="utf-8").replace("$schema=..", f"$schema={path.parent.parent}"), end="")

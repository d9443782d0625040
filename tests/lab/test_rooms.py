"""The rooms of the lab: each imports only those before it, and only what they export."""

import ast
from pathlib import Path

from losspool import lab

SOURCE = Path(lab.__file__).parent
ROOMS = ("library", "comparison", "tables", "figures", "report", "grids")


def imported(path: Path) -> list[tuple[str, str]]:
    """Module and name of everything that a file imports from the lab."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    return [(node.module, alias.name) for node in nodes for alias in node.names if "losspool.lab" in node.module]


def test_rooms_are_all_there_is():
    assert sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name[0] != "_") == sorted(ROOMS)
    assert [path.name for path in SOURCE.glob("*.py")] == ["__init__.py"]


def test_imports_between_rooms_point_one_way_and_through_the_door():
    outside = [SOURCE.parent / "cli/lab.py", *SOURCE.parents[2].glob("results/*.py")]
    for path in [*SOURCE.rglob("*.py"), *outside]:
        own = path.relative_to(SOURCE).parts[0] if path.is_relative_to(SOURCE) else None
        for module, name in imported(path):
            room = module.split(".")[2]
            if room == own:
                continue
            assert module == f"losspool.lab.{room}", f"{path}: imports from inside of the room {room}"
            assert name in __import__(module, fromlist=["__all__"]).__all__, f"{path}: {name} is not exported"
            assert own is None or ROOMS.index(room) < ROOMS.index(own), f"{path}: imports {room}"

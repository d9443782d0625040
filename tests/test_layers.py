"""Imports point one way, between files, rooms and folders; the core needs torch alone; no private name of torch."""

import ast
import importlib
import inspect
import os
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import losspool

SOURCE = Path(losspool.__file__).parent
ROOT = SOURCE.parents[1]

# Top to bottom: each room may import those below it. Subfolders belong to their room; their own graph has no cycle.
ROOMS = (
    "cli",
    "lab",
    "segmentation.training",
    "segmentation.prediction",
    "segmentation.doctor",
    "segmentation.runs",
    "segmentation.planning",
    "segmentation.config",
    "segmentation.losses",
    "segmentation.models",
    "segmentation.data",
    "segmentation.base",
    "integrations",
    "",  # the public face: functional.py, modules.py, …
    "ops",
    "kernels",
    "solver",
)

PRIVATE_NAMES = {
    "_assert_async": "torch: an assertion that the host does not wait for has no public equivalent",
    "_build_loss": "nnU-Net: the method that its trainers override",
    "_exit": "os: public, in spite of its name",
    "_replace": "NamedTuple: public, in spite of its name",
}
"""Names with a leading underscore that may be used on something else than ``self``, with the reason."""

STARTED = {
    ("losspool.lab.grids.tasks", "losspool.cli.job"): "a task is a command in a process of its own, on any machine",
}
"""Modules that a file of a lower room names in its text, to start them with ``python -m``, with the reason."""


def module_name(path: Path) -> str:
    parts = ["losspool", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in SOURCE.rglob("*.py")}


@cache
def imports(path: Path) -> frozenset[str]:
    """What a file imports: modules, and names of modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write the whole name of what is imported"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def imported_modules(path: Path) -> set[str]:
    """The files of this package that a file imports."""
    found = set()
    for name in imports(path):
        while name and name not in FILES:
            name = name.rpartition(".")[0]
        found |= {name} - {""}
    return found


def folder(module: str) -> str:
    """Relative to the package: ``segmentation.data.streets``; the package's own folder is empty."""
    return ".".join(FILES[module].parent.relative_to(SOURCE).parts)


def room(module: str) -> str:
    """The room that a folder belongs to."""
    return max((each for each in ROOMS if f"{folder(module)}.".startswith(f"{each}.") or not each), key=len)


def folder_graph() -> dict[str, set[str]]:
    graph = defaultdict(set)
    for module, path in FILES.items():
        if module == "losspool.__main__":
            continue  # the command, by another name
        for other in imported_modules(path):
            if folder(other) != folder(module):
                graph[folder(module)].add(folder(other))
    return dict(graph)


def test_rooms_import_only_rooms_below_them():
    assert len(FILES) > 100
    for module, path in FILES.items():
        for other in imported_modules(path) if module != "losspool.__main__" else ():
            assert ROOMS.index(room(module)) <= ROOMS.index(room(other)), f"{module} imports {other}"


def test_rooms_start_only_what_is_listed_above_them():
    """An import shows in the graph, the name of a module in a text does not."""
    found = set()
    for module, path in FILES.items():
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        named = (texts & FILES.keys()) - {"losspool"}  # also the name of threads
        found |= {(module, other) for other in named if ROOMS.index(room(module)) > ROOMS.index(room(other))}
    assert found == set(STARTED)  # one that is no longer needed is a failure too


def test_no_cycle_between_folders():
    graph = folder_graph()
    for name, others in sorted(graph.items()):  # seen with pytest -s
        print(f"{name or 'losspool'} -> {', '.join(sorted(other or 'losspool' for other in others))}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"folders import each other: {' -> '.join(error.args[1])}")


def test_a_cycle_would_be_found():
    with pytest.raises(CycleError):
        TopologicalSorter({**folder_graph(), "segmentation.base": {"segmentation.data"}}).prepare()


def is_door(module: str) -> bool:
    """The ``__init__`` of a folder of ``segmentation/`` or ``lab/``; those of folders inside it are not."""
    parts = module.split(".")
    return FILES[module].name == "__init__.py" and parts[1] in ("segmentation", "lab") and len(parts) == 3


def test_a_folder_inside_a_room_has_no_door():
    assert is_door("losspool.segmentation.data")
    assert not is_door("losspool.segmentation.data.kinds.streets")
    assert not is_door("losspool.lab.grids.tasks")
    assert not is_door("losspool.solver")


def test_rooms_are_entered_through_their_door():
    """Other rooms, results, benchmarks and documents import from a room's ``__init__``, not from the files in it."""
    users = [*SOURCE.rglob("*.py"), *ROOT.glob("results/*.py"), *ROOT.glob("benchmarks/*.py")]
    for path in users:
        own = room(module_name(path)) if path.is_relative_to(SOURCE) else None
        for name in imports(path):
            holder, _, attribute = name.rpartition(".")
            has_door = holder.startswith(("losspool.segmentation.", "losspool.lab."))
            if holder in FILES and has_door and room(holder) != own:
                assert is_door(holder), f"{path.name} imports {name}"
                door = importlib.import_module(holder)
                assert attribute in door.__all__, f"{path.name} imports {name}"


def test_base_imports_no_other_room():
    for module, path in FILES.items():
        if module.startswith("losspool.segmentation.base"):
            ours = {name for name in imports(path) if name.startswith("losspool")}
            assert all(name.startswith("losspool.segmentation.base") for name in ours), path.name


@pytest.mark.parametrize("name", ["segmentation", "segmentation/data", "lab"])
def test_no_loose_module_where_there_are_folders(name):
    assert [path.name for path in (SOURCE / name).glob("*.py")] == ["__init__.py"]


def test_documents_import_from_rooms():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        code = "\n".join(block for block in path.read_text().split("```python\n")[1:])
        for line in map(str.strip, code.splitlines()):
            if line.startswith(("from losspool.", "import losspool.")):
                module = line.split()[1]
                assert is_door(module) or module.startswith("losspool.integrations."), f"{path.name}: {line}"


def test_the_core_needs_torch_and_nothing_else():
    for module, path in FILES.items():
        if room(module) in ("", "ops", "kernels", "solver") and module != "losspool.__main__":
            ours = {"torch", "losspool", *(["triton"] if room(module) == "kernels" else [])}
            for name in imports(path):
                assert name.split(".")[0] in ours | sys.stdlib_module_names, f"{path.name} imports {name}"


def test_the_loss_imports_torch_and_nothing_else():
    """In a process of its own, where no other requirement can be imported. Triton waits until a kernel is used."""
    code = (
        "import sys\n"
        "for name in ('numpy', 'matplotlib', 'PIL', 'yaml', 'pydantic', 'lightning', 'rich', 'typer'):\n"
        "    sys.modules[name] = None\n"
        "import losspool, torch\n"
        "losspool.cross_entropy(torch.zeros(1, 2, 3), torch.zeros(1, 3, dtype=torch.long))\n"
        "losspool.max_pool(torch.rand(1, 9))\n"
        "print(*sys.modules)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LOSSPOOL_KERNELS"}
    environment["PYTHONWARNINGS"] = "ignore"  # torch would like numpy
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "losspool" in found
    assert not {"triton", "torch._dynamo", "losspool.kernels.operators"} & found
    assert not any(name.startswith(("losspool.lab", "losspool.segmentation")) for name in found)


def test_nothing_in_the_package_uses_the_reference():
    for path in SOURCE.rglob("*.py"):
        assert not any(name.startswith("losspool.reference") for name in imports(path)), path.name


def private_names(source: str) -> set[str]:
    """Private names of torch that are imported, and those of anything that are looked up on other objects than self."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [part for alias in node.names if alias.name.startswith("torch") for part in alias.name.split(".")]
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            names = [] if own else [node.attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            names = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
        found |= {name for name in names if name.startswith("_") and not name.startswith("__")}
    return found


def test_no_private_name_of_torch():
    used = {name: path.name for path in SOURCE.rglob("*.py") for name in private_names(path.read_text())}
    assert set(used) == set(PRIVATE_NAMES), used  # one that is no longer needed is a failure too


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from torch.utils.data.dataloader import _BaseDataLoaderIter", "_BaseDataLoaderIter"),
        ("import torch\ntorch.nn.modules.batchnorm._BatchNorm", "_BatchNorm"),
        ("batches._shutdown_workers()", "_shutdown_workers"),
        ("getattr(batches, '_pin_memory_thread', None)", "_pin_memory_thread"),
        ("batches._workers_done_event = event", "_workers_done_event"),
    ],
)
def test_private_names_would_be_found(source, name):
    assert private_names(source) == {name}
    assert private_names("class A:\n    def f(self):\n        return self._own, object().__dict__") == set()


def test_no_lock_of_our_own():
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert not [path for path in files if any(name.split(".")[0] == "fcntl" for name in imports(path))]


def test_ten_public_names():
    assert sorted(losspool.__all__) == [
        "BCEWithLogitsLoss",
        "CrossEntropyLoss",
        "LossMaxPooling",
        "PoolingStats",
        "UpsampledCrossEntropyLoss",
        "binary_cross_entropy_with_logits",
        "cross_entropy",
        "max_pool",
        "pooling_weights",
        "upsampled_cross_entropy",
    ]


def test_modules_take_the_arguments_of_their_functions_in_the_same_order():
    for module, function in (
        (losspool.CrossEntropyLoss, losspool.cross_entropy),
        (losspool.UpsampledCrossEntropyLoss, losspool.upsampled_cross_entropy),
        (losspool.BCEWithLogitsLoss, losspool.binary_cross_entropy_with_logits),
        (losspool.LossMaxPooling, losspool.max_pool),
    ):
        of_function = list(inspect.signature(function).parameters)
        of_module = list(inspect.signature(module).parameters)
        per_call = {"input", "target", "losses", "mask", "stats"}
        assert of_module == [name for name in of_function if name not in per_call]
        for name in of_module:
            defaults = (inspect.signature(what).parameters[name].default for what in (module, function))
            assert len(set(defaults)) == 1, name

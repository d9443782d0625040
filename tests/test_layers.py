"""Imports point one way: lab → segmentation → core. And the public face is eight names."""

import ast
import inspect
from pathlib import Path

import losspool

SOURCE = Path(losspool.__file__).parent
RANKS = {"segmentation": 1, "lab": 2}


def layer(module: str) -> int:
    parts = module.split(".")
    return RANKS.get(parts[1], 0) if len(parts) > 1 else 0


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: write the whole name of what is imported"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_point_downwards():
    files = list(SOURCE.rglob("*.py"))
    assert len(files) > 10
    for path in files:
        module = ".".join(["losspool", *path.relative_to(SOURCE).with_suffix("").parts])
        if module == "losspool.cli.app":
            continue  # the command table reaches everything
        for name in imports(path):
            if name.startswith("losspool"):
                assert layer(name) <= layer(module), f"{module} imports {name}"


def test_the_core_needs_torch_and_nothing_else():
    standard = {"__future__", "collections", "contextlib", "dataclasses", "functools", "math", "typing"}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in RANKS or path.name == "cli.py":
            continue
        for name in imports(path):
            assert name.split(".")[0] in standard | {"torch", "losspool"}, f"{path.name} imports {name}"


def test_nothing_in_the_package_uses_the_reference():
    for path in SOURCE.rglob("*.py"):
        assert not any(name.startswith("losspool.reference") for name in imports(path)), path.name


def test_eight_public_names():
    assert sorted(losspool.__all__) == [
        "CrossEntropyLoss",
        "LossMaxPooling",
        "PoolingStats",
        "UpsampledCrossEntropyLoss",
        "cross_entropy",
        "max_pool",
        "pooling_weights",
        "upsampled_cross_entropy",
    ]


def test_modules_take_the_arguments_of_their_functions_in_the_same_order():
    for module, function in (
        (losspool.CrossEntropyLoss, losspool.cross_entropy),
        (losspool.UpsampledCrossEntropyLoss, losspool.upsampled_cross_entropy),
        (losspool.LossMaxPooling, losspool.max_pool),
    ):
        of_function = list(inspect.signature(function).parameters)
        of_module = list(inspect.signature(module).parameters)
        per_call = {"input", "target", "losses", "mask", "stats"}
        assert of_module == [name for name in of_function if name not in per_call]
        for name in of_module:
            defaults = (inspect.signature(what).parameters[name].default for what in (module, function))
            assert len(set(defaults)) == 1, name

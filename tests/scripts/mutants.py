"""Change the solver in many small ways, one at a time, and see the tests fail: `make mutants`.

Prints every mutant that survives, and exits with 1 if there is one. ``--only NAME`` runs those
whose description contains NAME, ``--list`` shows them all, ``--jobs N`` runs N at once.
"""

import argparse
import ast
import contextlib
import copy
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cvxpy  # noqa: F401  imported once, before the forks
import mpmath  # noqa: F401
import pytest
import torch

ROOT = Path(__file__).parents[2]
SOLVER = "src/losspool/solver"
FILES = ("optimum.py", "newton.py", "bracketed.py", "sorting.py", "counting.py", "survey.py", "powers.py")
TESTS = (
    "tests/test_kill.py",
    "tests/test_search.py",
    "tests/test_exactness.py::test_losses_a_few_ulps_apart",
    "tests/test_exactness.py::test_m_as_a_share_of_the_pixels",
    "tests/test_without_float64.py::test_significand_and_exponent_of_every_kind_of_number",
)

# Mutants by hand: what somebody might really get wrong.
NAMED = [
    ("skip rounds", "bracketed.py", "3 * (_digits(losses.dtype) + 1)", "_digits(losses.dtype) // 4"),
    ("stop after two rounds", "newton.py", "counts == before and min(rooms) > 0", "before is not None"),
    ("off by one in the count", "newton.py", "m - count for", "m - count - 1 for"),
    (
        "off by one in the bracketed search",
        "bracketed.py",
        "room = self._pixels - tally.above",
        "room = self._pixels - tally.above + 1",
    ),
    ("off by one in the ranks", "sorting.py", "torch.arange(1 - size, 1,", "torch.arange(-size, 0,"),
    ("cut powers on both sides", "sorting.py", "room, uncut, value", "room, powers, value"),
    ("a reference without room", "sorting.py", "(room <= 0).sum(", "(room > 0).sum("),
    ("base of the sum: the reference", "bracketed.py", "reading.sum / reading.unit", "reading.sum"),
    (
        "a step just below α* ends the search",
        "bracketed.py",
        "holds and self._final and room > 0",
        "holds and self._final",
    ),
    ("no tolerance for rounded sums", "bracketed.py", "self._tolerance * room", "0.0"),
    ("never renew the powers", "bracketed.py", "if any(weak):", "if False:"),
    ("n counts positive losses", "survey.py", "Survey(size - void[row]", "Survey(size - others[row]"),
    (
        "m is not raised to one pixel",
        "optimum.py",
        "max(m * pool.valid if share else m, 1.0)",
        "(m * pool.valid if share else m)",
    ),
]
# What only makes the search faster: any value there gives the same result.
SPEED_ONLY = {"_mean_starts", "_sampled_starts", "_coprime_stride", "column_blocks", "lowest_exponent"}
# What changes the way of the search and not its end, or a number that is not used where it differs.
HARMLESS: set[str] = set()
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {"amax": "amin", "minimum": "maximum", "maximum": "minimum", "log": "exp", "exp": "log", "gt": "ge", "ge": "gt"}


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Every small change of one node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        yield ast.Compare(node.left, [COMPARISONS[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert | ast.USub | ast.Not):
        yield node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
        changed = ast.Attribute(node.func.value, CALLS[node.func.attr], ast.Load())
        yield ast.Call(changed, node.args, node.keywords)


def generated(file: str) -> Iterator[tuple[str, str, str]]:
    """(description, file, whole text) of every mutant of a file."""
    source = (ROOT / SOLVER / file).read_text()
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name not in SPEED_ONLY]
    for function in functions:
        annotations = {id(part) for note in _annotations(function) for part in ast.walk(note)}
        for index, node in enumerate(ast.walk(function)):
            for replacement in () if id(node) in annotations else variants(node):
                mutant = copy.deepcopy(tree)
                twin = next(
                    f for f in ast.walk(mutant) if isinstance(f, ast.FunctionDef) and f.lineno == function.lineno
                )
                target = list(ast.walk(twin))[index]
                _Replace(target, replacement).visit(mutant)
                what = f"{ast.unparse(node)}  →  {ast.unparse(ast.fix_missing_locations(copy.deepcopy(replacement)))}"
                yield (
                    f"{file}:{node.lineno} {function.name}: {what}",
                    file,
                    ast.unparse(ast.fix_missing_locations(mutant)),
                )


def _annotations(function: ast.FunctionDef) -> Iterator[ast.AST]:
    for node in ast.walk(function):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
    if function.returns:
        yield function.returns


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target, self._replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        return self._replacement if node is self._target else super().visit(node)


def mutants() -> Iterator[tuple[str, str, str]]:
    for name, file, old, new in NAMED:
        text = (ROOT / SOLVER / file).read_text()
        if old not in text:
            raise SystemExit(f"mutants: {file} no longer holds {old!r}")
        yield name, file, text.replace(old, new)
    for file in FILES:
        yield from generated(file)


def survives(mutant: tuple[str, str, str]) -> bool:
    """Run the tests in a fork, which has all but losspool imported already."""
    process = multiprocessing.get_context("fork").Process(target=_test, args=mutant[1:])
    process.start()
    process.join(timeout=900)
    if process.is_alive():  # it hangs: that is noticed too
        process.kill()
        process.join()
    return process.exitcode == 0


def _test(file: str, text: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (90, 90))  # ends an endless loop; without a mutant the tests take 15 s
    with tempfile.TemporaryDirectory() as room:
        shutil.copytree(ROOT / "src/losspool", Path(room) / "losspool", ignore=shutil.ignore_patterns("__pycache__"))
        (Path(room) / "losspool/solver" / file).write_text(text)
        sys.path.insert(0, room)
        os.chdir(ROOT)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS])
            import losspool

            tested = losspool.__file__.startswith(room)
    os._exit(int(code) if tested else 0)  # a run that tested something else killed nothing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [
        mutant for mutant in mutants() if options.only in mutant[0] and mutant[0].split(" ", 1)[1] not in HARMLESS
    ]
    if options.list:
        print("\n".join(mutant[0] for mutant in chosen))
        return 0
    torch.set_num_threads(1)
    if not survives(("", FILES[0], (ROOT / SOLVER / FILES[0]).read_text())):
        raise SystemExit("mutants: the tests fail without any change")
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for count, (mutant, alive) in enumerate(zip(chosen, pool.map(survives, chosen), strict=True), 1):
            survivors += [mutant[0]] if alive else []
            print(f"\r{count} of {len(chosen)} mutants, {len(survivors)} survive", end="", flush=True)
            if alive:
                print(f"\n  {mutant[0]}", flush=True)
    print()
    return int(bool(survivors))


if __name__ == "__main__":
    raise SystemExit(main())

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
FILES = ("optimum.py", "search.py", "tally.py")
TESTS = ("tests/test_kill.py", "tests/test_search.py", "tests/test_exactness.py::test_losses_a_few_ulps_apart")

# Mutants by hand: what somebody might really get wrong.
NAMED = [
    (
        "skip a round",
        "search.py",
        "for _ in range(_digits(losses.dtype)):",
        "for _ in range(_digits(losses.dtype) - 1):",
    ),
    ("stop after two rounds", "search.py", "if bool(done.all()):", "if bool(done.all()) or index == 1:"),
    ("off by one in the count", "optimum.py", "room = pixels - tally.above", "room = pixels - tally.above - 1"),
    (
        "off by one in the search",
        "search.py",
        "        room = pixels - tally.above",
        "        room = pixels - tally.above + 1",
    ),
    ("base of the log-sum-exp: the reference", "tally.py", "total / unit", "total"),
    (
        "base of the log-sum-exp: each block's own",
        "tally.py",
        "rebased = total * power",
        "rebased = total + 0 * power",
    ),
    ("a step just below α* ends the search", "search.py", "& ((room > 0) | ~solvable)", ""),
    ("no tolerance for rounded sums", "search.py", "excess <= take.tolerance * room", "excess <= 0"),
    ("never renew the powers", "tally.py", "if bool(weak.any()):", "if False:"),
    (
        "n counts positive losses",
        "optimum.py",
        "survey = torch.stack([losses.shape[1] - void,",
        "survey = torch.stack([positives,",
    ),
    ("m is not raised to one pixel", "optimum.py", ".clamp(min=1.0)", ""),
]
# What only makes the search faster: any value there gives the same result.
SPEED_ONLY = {"sampled_start", "_coprime_stride", "column_blocks", "lowest_exponent"}
# What changes the way of the search and not its end, or a number that is not used where it differs.
HARMLESS = {
    "bisect: 1  →  2",  # a bracket that is one float wider
    "newton: 1  →  2",
    "newton: pixels - positives  →  pixels + positives",  # a first guess of the interpolation
    "newton: high - 1  →  high + 1",  # a start above the largest loss has the same tally
    "newton: high - low <= 1  →  high - low < 1",  # one round more
    "newton: high - low  →  high + low",
    "newton: index >= _NEWTON_ROUNDS  →  index > _NEWTON_ROUNDS",  # whose turn it is
    "newton: turn == 0  →  turn != 0",
    "newton: 3  →  4",
    "newton: 2  →  3",
    "newton: 0  →  1",
    "newton: (low + ((high - low) * share).long()).minimum(high - 1)"
    "  →  (low + ((high - low) * share).long()).maximum(high - 1)",
    "newton: _digits(losses.dtype) + 1  →  _digits(losses.dtype) - 1",  # a bound that is not reached
    "newton: excess <= take.tolerance * room  →  excess < take.tolerance * room",
    "newton: low + 1  →  low - 1",
    "newton: (room > 0) & (tally.largest > 0)  →  (room > 0) | (tally.largest > 0)",  # clamped to the bracket
    "newton: room > 0  →  room >= 0",
    "newton: tally.largest > 0  →  tally.largest >= 0",
    "newton: 0.0  →  1.0",
    "__call__: self._q == INFINITE_Q  →  self._q != INFINITE_Q",  # kept powers or fresh ones: the same sums
    "__call__: not self._computed  →  self._computed",  # the first threshold is above the reference anyway
    "__call__: largest > 0  →  largest >= 0",
    "__call__: total < self._WEAK  →  total <= self._WEAK",
    "__call__: 1.0  →  2.0",  # how far the reference lies above the threshold
    "__init__: 32  →  33",
    "__init__: 0  →  1",
    "take_tally: 1  →  2",  # merging one part with nothing
    "_merge: top > 0  →  top >= 0",  # a sum that is zero
    "_merge: 0.0  →  1.0",
    "_merge: 1.0  →  2.0",
    "_block_tally: 0  →  1",
    "_block_tally: 1.0  →  2.0",
    "solve: tally.largest > 0  →  tally.largest >= 0",  # α is 0 either way
    "solve: 0.0  →  1.0",
    "weights: solution.reference > 0  →  solution.reference >= 0",
    "weights: exponent > 1 / 3  →  exponent >= 1 / 3",  # both formulas are exact there
    "weights: 1 / 3  →  1 * 3",
    "weights: 1  →  2",
    "weights: 3  →  4",
    "weights: not host.host_may_look(losses)  →  _device.host_may_look(losses)",  # only spares a pass
    "_survey: ranks[:, 2].amax(0)  →  ranks[:, 2].amin(0)",  # equal ranks; tests/test_processes.py has others
}
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
    process.join(timeout=120)
    if process.is_alive():  # it hangs: that is noticed too
        process.kill()
        process.join()
    return process.exitcode == 0


def _test(file: str, text: str) -> None:
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

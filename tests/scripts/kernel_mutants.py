"""Break the kernels in many ways, one at a time, and see the test that should notice fail.

Prints every mutant that survives, and exits with 1 if there is one. An argument runs only the
mutants whose description contains it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = "src/losspool/kernels"

# (description, file, before, after, tests that must fail)
MUTANTS = [
    ("three passes", "solve.py", "PASSES = 4", "PASSES = 3", "test_solver.py -k hard_matrix"),
    (
        "hi from the lower bound",
        "narrowing.py",
        "edge_power > most",
        "edge_power > least",
        "test_solver.py -k hard_matrix",
    ),
    ("lo from the upper bound", "narrowing.py", "edge_power <= least", "edge_power <= most", "test_solver.py -k hard"),
    ("fractions of m are dropped", "narrowing.py", "(m - whole)", "(m - m)", "test_solver.py -k few_losses"),
    ("no correction of powers", "keys.py", "1.0 + 0.6931471805599453 * lost", "1.0", "test_keys.py -k powers"),
    ("denormals are not normalised", "keys.py", "size * 16777216.0", "size", "test_solver.py -k hard_matrix"),
    ("-0.0 is large", "keys.py", "size = tl.abs(loss)", "size = loss", "test_solver.py -k special"),
    ("a loss equal to θ is saturated", "pooling.py", "key > theta, 1.0", "key >= theta, 1.0", "test_solver.py -k hard"),
    (
        "zero losses get a weight",
        "pooling.py",
        "key > ZERO, below, 0.0",
        "key > ZERO, below, 1.0",
        "test_solver.py -k special",
    ),
    (
        "NaN losses are not noted",
        "pooling.py",
        "key == NOT_A_NUMBER, 2",
        "key == NOT_A_NUMBER, 0",
        "test_solver.py -k special",
    ),
    ("void pools count", "pooling.py", "tl.sum(filled, 0)", "R", "test_logits.py -k no_valid"),
    ("chunks overlap", "pooling.py", "(chunk * tiles + tile)", "tile", "test_solver.py -k split"),
    (
        "programs overlap",
        "pooling.py",
        "part.to(tl.int64) * chunks * (tiles",
        "0 * chunks * (tiles",
        "test_solver.py -k split",
    ),
    ("masks are ignored", "solve.py", "MASKED=mask is not None", "MASKED=False", "test_solver.py -k max_pool_has"),
    (
        "bad labels pass",
        "cross_entropy.py",
        "tl.where(bad, BAD_VALUE, loss)",
        "loss",
        "test_logits.py -k bad_arguments",
    ),
    (
        "bad class weights pass",
        "cross_entropy.py",
        "(weights >= 0)",
        "(weights >= -9)",
        "test_logits.py -k bad_arguments",
    ),
    ("negative losses pass", "pooling.py", "(loss < 0) & inside", "(loss < -9) & inside", "test_solver.py -k negative"),
    (
        "the log-sum-exp in one number",
        "cross_entropy.py",
        "(x - peak) - log_total",
        "x - (peak + log_total)",
        "test_logits.py -k shift",
    ),
    (
        "sums of logits from zero",
        "cross_entropy.py",
        'reference > float("-inf"), reference',
        "reference != reference, reference",
        "test_logits.py -k shift",
    ),
    ("NaN is never predicted", "cross_entropy.py", "| ((x != x) & (peak == peak))", "", "test_logits.py -k stats"),
    (
        "void gradients are not zeroed",
        "cross_entropy.py",
        "tl.where(key == VOID, 0.0, g)",
        "g",
        "test_logits.py -k void_pixels",
    ),
    (
        "class weights are ignored backward",
        "cross_entropy.py",
        "hard = hard * tl.load",
        "hard = hard + 0 * tl.load",
        "test_logits.py -k options",
    ),
    (
        "ruled-out labels are finite",
        "upsampled.py",
        "some & (picked < RULED_OUT)",
        "some & (picked != picked)",
        "test_logits.py -k masked",
    ),
    (
        "ruled-out smoothing is finite",
        "upsampled.py",
        "some & (lowest < RULED_OUT)",
        "some & (lowest > 0)",
        "test_logits.py -k masked",
    ),
    ("-inf is interpolated", "upsampled.py", "tl.where(x < LOWEST, LOWEST, x)", "x", "test_logits.py -k masked"),
    (
        "the last row keeps nothing",
        "upsampled.py",
        "(i == h - 1) if last",
        "(i > h) if last",
        "test_logits.py -k sizes",
    ),
    ("corners are exchanged", "upsampled.py", "sum_b += (1.0 - down)", "sum_b += down", "test_logits.py -k sizes"),
    ("gaps begin one late", "upsampled.py", "+ fine + coarse - 1)", "+ fine + coarse + 1)", "test_logits.py -k sizes"),
    (
        "an operator too many",
        "solve.py",
        "return loss, table, factor",
        "return loss.clone(), table, factor",
        "test_launches.py",
    ),
    (
        "a look at a value",
        "solve.py",
        "return loss, table, factor",
        "return loss + 0 * loss.item(), table, factor",
        "test_launches.py",
    ),
    (
        "a copy of the logits",
        "operators.py",
        "gradient = torch.empty_like(logits)",
        "gradient = logits.clone()",
        "test_launches.py",
    ),
    (
        "a wrong fake operator",
        "operators.py",
        "losses.new_empty((), dtype=torch.float32), table",
        "losses.new_empty(1, dtype=torch.float32), table",
        "test_compiled.py -k fake",
    ),
    ("ranks forget each other's counts", "solve.py", "record.copy_(totals)", "pass", "test_global.py"),
    (
        "an exchange too many",
        "solve.py",
        "    below, *rest = ",
        "    exchange(totals, floats)\n    below, *rest = ",
        "test_global.py",
    ),
    (
        "the hardware's logarithm",
        "keys.py",
        "log = log2_ratio(to_key(x), tl.full((1,), ONE, tl.uint32))",
        "log = tl.log2(x)",
        "test_builds.py -k precision-installed",
    ),
    (
        "a sum of floats in any order",
        "pooling.py",
        "tl.store(sums + slot, tl.sum(higher, 0))",
        "tl.atomic_add(sums + slot, tl.sum(higher, 0))",
        "test_builds.py -k order-installed",
    ),
    ("no assertions", "solve.py", "asserting=True, ", "", "test_builds.py -k assertions-installed"),
    ("too many registers", "operators.py", "_CELLS = 256", "_CELLS = 2048", "test_builds.py -k registers-installed"),
]


def survives(file: str, before: str, after: str, tests: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", Path(folder) / "src")
        path = Path(folder) / KERNELS / file
        source = path.read_text()
        assert before in source, f"{file} has no {before!r}"
        path.write_text(source.replace(before, after))
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(folder) / "src"),
            "TRITON_INTERPRET": "1",
            "LOSSPOOL_KERNELS": "interpret",
        }
        name, *options = tests.split()
        if options[:1] == ["-k"] and options[1].endswith("-installed"):
            options = ["-k", f"{options[1].removesuffix('-installed')} and installed"]
        command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", f"tests/kernels/{name}", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
        return done.returncode == 0


if __name__ == "__main__":
    chosen = [mutant for mutant in MUTANTS if all(word in mutant[0] for word in sys.argv[1:])]
    survivors = 0
    for description, *mutant in chosen:
        alive = survives(*mutant)
        survivors += alive
        print(f"{'SURVIVES' if alive else 'noticed '}  {description}", flush=True)
    print(f"{len(chosen)} mutants, {survivors} survive")
    sys.exit(survivors > 0)

"""Build every kernel for GPUs that are not there, and print what each build takes, one line of JSON per build.

Usage: python tests/scripts/kernel_builds.py [--more | --all] [TARGET ...], without TRITON_INTERPRET. The launches of
real calls are recorded instead of run, so that what is built is what would be launched. --more adds other types and
options for the first target, as CI does; --all adds them, and pools of more than one chunk, for every target.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from losspool.kernels import launch, operators, solve

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TYPES = {
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
}
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


class Launch(NamedTuple):
    kernel: Any
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]


def recorded(
    kernel: Any, programs: int, *arguments: Any, warps: int = 4, asserting: bool = False, **constants: Any
) -> Launch:
    """Return a launch as Triton's launcher would specialise it."""
    signature, values, aligned = {}, dict(constants), []
    fixed = set(kernel.do_not_specialize or ())
    for name, value in zip(kernel.arg_names, arguments, strict=False):
        if isinstance(value, Tensor):
            signature[name] = f"*{TYPES[value.dtype]}"
            aligned.append(name)
        elif value is None or (value == 1 and type(value) is int and name not in fixed):
            values[name] = value
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0 and name not in fixed:
                aligned.append(name)
    signature |= dict.fromkeys(values, "constexpr")
    ordered = tuple((name, signature[name]) for name in kernel.arg_names)
    options = {"num_warps": warps, **launch.OPTIONS, **(launch.ASSERTING if asserting else {})}
    return Launch(kernel, ordered, tuple(sorted(values.items())), tuple(aligned), tuple(options.items()))


def main_calls() -> None:
    """Call the operators as most users do."""
    cross_entropy(torch.zeros(2, 19, 302_500), torch.zeros(2, 302_500, dtype=torch.int64))
    cross_entropy(torch.zeros(2, 19, 69, 69), torch.zeros(2, 302_500, dtype=torch.int64), size=(550, 550))
    max_pool(torch.zeros(2, 302_500), None)


def more_calls() -> None:
    """Call the operators with other types and options, which lead to different kernels."""
    half = torch.zeros(2, 19, 302_500, dtype=torch.bfloat16)
    labels = torch.zeros(2, 302_500, dtype=torch.int64)
    cross_entropy(half, labels)
    cross_entropy(half[..., : 69 * 69].unflatten(2, (69, 69)), labels, size=(550, 550))
    max_pool(half[:, 0], labels == 0)
    options = {"class_weight": torch.ones(150), "smoothing": 0.1, "predict": True}
    labels = torch.zeros(1, 64 * 64, dtype=torch.uint8)
    cross_entropy(torch.zeros(1, 4096, 150, dtype=torch.float16).transpose(1, 2), labels, **options)
    cross_entropy(torch.zeros(1, 150, 8, 8, dtype=torch.float16), labels, size=(64, 64), align=True, **options)


def large_calls() -> None:
    """Solve a pool of more than one chunk."""
    solve.solve(torch.zeros(1, 50_000_000), None, 1.0, 7.0, False, from_logits=True)


def cross_entropy(logits, target, class_weight=None, smoothing=0.0, predict=False, size=(), align=False) -> None:
    losses, peaks, logs, _ = operators.pixel_losses(logits, target, class_weight, -100, smoothing, predict, size, align)
    _, table, factor = solve.solve(losses, None, 1.3, 0.25, True, from_logits=True)
    saved = (logits, target, class_weight, losses, peaks, logs, table, factor, torch.zeros(()))
    operators.logits_gradient(*saved, -100, smoothing, 1.3, size, align)
    if predict:
        operators.pixel_weights(losses, None, table, 1.3)


def max_pool(losses, mask) -> None:
    _, table, factor = solve.solve(losses, mask, 1.3, 0.25, True, from_logits=False)
    operators.losses_gradient(losses, mask, table, factor, torch.zeros(()), 1.3)


def launches(*calls: Callable[[], None]) -> list[Launch]:
    """Return every different launch of the calls."""
    found: dict[Launch, None] = {}

    def note(*arguments: Any, **constants: Any) -> None:
        found.setdefault(recorded(*arguments, **constants))

    for module in (operators, solve):
        module.run = note  # type: ignore[attr-defined]
    for call in calls:
        call()
    return list(found)


def build(launch_: Launch, target: str) -> dict[str, Any]:
    names = launch_.kernel.arg_names
    source = ASTSource(
        fn=launch_.kernel,
        signature=dict(launch_.signature),
        constexprs={(names.index(name),): value for name, value in launch_.constants},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in launch_.aligned},
    )
    built = triton.compile(source, target=TARGETS[target], options=dict(launch_.options))
    result = {"target": target, "kernel": launch_.kernel.fn.__name__, "constants": str(dict(launch_.constants))}
    if target == "gfx942":
        text = built.asm["amdgcn"]
        usage = {key: int(re.search(rf"\.{key}:\s*(\d+)", text)[1]) for key in ("vgpr_count", "vgpr_spill_count")}
        float_atomics = re.findall(r"\b(?:global|flat|buffer)_atomic_(?:pk_)?(?:add|max|min)_(?:f|bf)\d+", text)
        return result | {
            "registers": usage["vgpr_count"],
            "spills": usage["vgpr_spill_count"],
            "float_atomics": float_atomics,
            "assertions": text.count("s_trap"),
        }
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        command = [str(TOOLS / "cuobjdump"), "-res-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, local = (int(re.search(rf"\b{name}:(\d+)", usage)[1]) for name in ("REG", "STACK", "LOCAL"))
    text = built.asm["ptx"]
    return result | {
        "registers": registers,
        "spills": stack + local,
        "float_atomics": re.findall(r"\b(?:atom|red)[.\w]*\.(?:f|bf)\d+\S*", text),
        "assertions": text.count("__assertfail"),
        "rough_logarithms": text.count("lg2.approx"),
        "flushed_denormals": len(re.findall(r"\b(?:add|sub|mul|fma|div)[.\w]*\.ftz", text)),
    }


if __name__ == "__main__":
    targets = [name for name in sys.argv[1:] if name in TARGETS] or list(TARGETS)
    calls = (main_calls, more_calls, large_calls) if "--all" in sys.argv else (main_calls,)
    every = [(each, target) for each in launches(*calls) for target in targets]
    if "--more" in sys.argv:
        every += [(each, targets[0]) for each in launches(main_calls, more_calls)[len(every) // len(targets) :]]
    for each, target in every:
        print(json.dumps(build(each, target)), flush=True)

"""What an accelerator would be asked to do: operators launched and bytes moved, counted without one.

The accelerator's path runs here on the CPU, under a mode that sees every operator. One that
computes reads its inputs and writes its outputs once; views and fresh memory cost nothing.
``--publish`` writes the table into docs/compile.md.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import losspool
from losspool.solver import host

DOCUMENT = Path(__file__).parents[1] / "docs" / "compile.md"
# Operators that only look at memory in another way, or take some without touching it.
FREE = {"alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "lift_fresh", "new_empty"}
FREE |= {"new_empty_strided", "permute", "select", "slice", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze"}
FREE |= {"_unsafe_view", "view", "view_as"}


class Ledger(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.launches, self.bytes = 0, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.name().removeprefix("aten::").split(".")[0] not in FREE:
            given = kwargs or {}
            outputs = tree_leaves(result)  # an in-place operator reads and writes its tensor: it counts twice
            inputs = tree_leaves((args, {name: value for name, value in given.items() if name != "out"}))
            self.launches += 1
            self.bytes += sum(
                leaf.numel() * leaf.element_size() for leaf in inputs + outputs if isinstance(leaf, Tensor)
            )
            if function.name().startswith("aten::sum") and args[0].dtype != result.dtype:
                # Torch sums a copy in the dtype of the result.
                self.launches += 1
                self.bytes += args[0].numel() * (args[0].element_size() + 2 * result.element_size())
        return result


def row(name: str, work: Callable[[], Any]) -> str:
    with Ledger() as ledger:
        work()
    return f"| {name} | {ledger.launches} | {ledger.bytes / 2**20:,.0f} MiB |"


def table() -> str:
    host.host_may_look = lambda tensor: False
    torch.manual_seed(0)
    labels = torch.randint(0, 19, (2, 550, 550))
    logits = torch.randn(2, 19, 550, 550, requires_grad=True)
    coarse = torch.randn(2, 19, 69, 69, requires_grad=True)
    losses = torch.rand(2, 550, 550)
    rows = [
        row("`F.cross_entropy`", lambda: F.cross_entropy(logits, labels).backward()),
        row("`cross_entropy`", lambda: losspool.cross_entropy(logits, labels).backward()),
        row("of which the search and the weights", lambda: losspool.pooling_weights(losses)),
        row(
            "`F.interpolate` + `F.cross_entropy`",
            lambda: F.cross_entropy(F.interpolate(coarse, (550, 550), mode="bilinear"), labels).backward(),
        ),
        row("`upsampled_cross_entropy`", lambda: losspool.upsampled_cross_entropy(coarse, labels).backward()),
    ]
    return "\n".join(["| work | launches | bytes read and written |", "|---|---|---|", *rows])


if __name__ == "__main__":
    text = table()
    print(text)
    if "--publish" in sys.argv[1:]:
        marked = re.compile(r"(<!-- launches -->\n).*?(<!-- /launches -->)", flags=re.DOTALL)
        DOCUMENT.write_text(marked.sub(lambda found: f"{found[1]}{text}\n{found[2]}", DOCUMENT.read_text()))

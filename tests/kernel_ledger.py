"""What a GPU would be asked to do: kernels launched by name, and bytes read and written, counted without one.

A launch reads or writes each of its tensors once. For torch's operators the same is assumed;
views and fresh memory cost nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from losspool.kernels import launch, operators, solve

FREE = {"alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "expand", "lift_fresh", "new_empty"}
FREE |= {"new_empty_strided", "permute", "select", "slice", "split", "squeeze", "t", "transpose", "unbind", "unsqueeze"}
FREE |= {"_unsafe_view", "view", "view_as", "_reshape_alias"}


class Ledger(TorchDispatchMode):
    """Counts inside a ``with`` block. With ``dry`` our kernels are counted but not run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.bytes = 0

    def add(self, name: str, *used: Any) -> None:
        self.names.append(name)
        self.bytes += sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(used) if isinstance(leaf, Tensor))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.name().removeprefix("aten::").split(".")[0]
        if name not in FREE:
            given = {key: value for key, value in (kwargs or {}).items() if key != "out"}
            self.add(name, () if name == "new_zeros" else args, given, result)
            if name == "sum" and args[0].dtype != result.dtype:
                self.add("copy before sum", args[0], args[0].new_empty(args[0].shape, dtype=result.dtype))
        return result


@contextmanager
def ledger(dry: bool = False) -> Iterator[Ledger]:
    counted = Ledger()

    def run(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
        if programs:
            counted.add(kernel.__name__, arguments)
            with torch.utils._python_dispatch._disable_current_modes():
                None if dry else launch.run(kernel, programs, *arguments, **constants)

    original = launch.run
    operators.run = solve.run = run  # type: ignore[attr-defined]
    try:
        with counted:
            yield counted
    finally:
        operators.run = solve.run = original  # type: ignore[attr-defined]

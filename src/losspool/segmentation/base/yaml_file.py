"""YAML from outside: plain values alone, no more than a person writes, and one sentence for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from losspool.segmentation.base.errors import UserError

# Far beyond what a recipe, a grid or a list of 254 classes needs.
_LARGEST_FILE = 1 << 18
_MOST_VALUES = 20_000
_DEEPEST = 20
_LONGEST_NUMBER = 200  # what is longer may not fit into a float, or take quadratic time to print

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def read_yaml(path: Path, what: str) -> Any:
    """The content; ``what`` the file is stands in the message when there is none. Tags that name code are refused."""
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise UserError(f"{path}: {what} is larger than {_LARGEST_FILE >> 10} KiB")
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: {what} does not exist") from None
    except (OSError, ValueError) as error:  # not UTF-8, or no possible name of a file
        raise UserError(f"{path}: {what} cannot be read ({error})") from None
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise UserError(f"{path}: not valid YAML ({error})") from None


def parse_yaml(text: str) -> Any:
    """The values of a text. Raises ValueError, with one line, for all that is not plain YAML of a sane extent."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _extent(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError):  # as PyYAML reads `!!int ''` and `!!bool maybe`
        raise ValueError("a value is not what its tag says") from None


class _Loader(yaml.SafeLoader):
    """Goes down no further than it must, so that it cannot be made to run out of stack."""

    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._level += 1
        if self._level > _DEEPEST + 1:
            raise ValueError(f"more than {_DEEPEST} levels")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node


def _extent(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """How many values a node holds and how deep, aliases written out: a few lines of them can stand for billions."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number of {len(node.value)} characters")
        return 1, 0
    if id(node) not in known:
        known[id(node)] = None
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(each,) for each in node.value]
        parts = [_extent(each, known) for pair in pairs for each in pair]
        known[id(node)] = 1 + sum(count for count, _ in parts), 1 + max((depth for _, depth in parts), default=0)
    extent = known[id(node)]
    if extent is None:
        raise ValueError("a value that holds itself")
    count, depth = extent
    if count > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values, aliases written out")
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    return extent

"""Untrusted YAML: plain values only, with limits on size and depth, and one sentence for every error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from losspool.segmentation.base.errors import UserError

# Far beyond what a recipe, a grid or a list of 254 classes needs.
_LARGEST_FILE = 1 << 18
_MOST_VALUES = 20_000
_DEEPEST = 20
_LONGEST_NUMBER = 200  # a longer one may overflow a float, or take quadratic time to print

# Four times as fast with libyaml, which PyYAML's wheels contain.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file. Error messages call it ``what``. Tags that name code are refused."""
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise UserError(f"{path}: {what} is larger than {_LARGEST_FILE >> 10} KiB")
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: {what} does not exist") from None
    except (OSError, ValueError) as error:  # not UTF-8, or not a valid file name
        raise UserError(f"{path}: {what} cannot be read ({error})") from None
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise UserError(f"{path}: not valid YAML ({error})") from None


def parse_yaml(text: str) -> Any:
    """Parse YAML text. Raises ValueError with a one-line message unless it is plain YAML within the limits."""
    try:
        _limit_depth(text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _size_and_depth(node, {})
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError):  # PyYAML on `!!int ''` and `!!bool maybe`
        raise ValueError("a value does not match its tag") from None


def is_utf8(text: str) -> bool:
    """Whether a text can be written: one from a file name or an escape sequence may hold half of a surrogate pair."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def yaml_text(content: dict[str, Any]) -> str:
    """A mapping as YAML, in the order of its keys."""
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True))


def yaml_line(value: Any) -> str:
    """A value as YAML, on one line."""
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000)
    return str(text).removesuffix("...\n").strip()


def _limit_depth(text: str) -> None:
    """Raise ValueError if collections nest too deeply.

    Checked on events: composing nodes recurses, and could overflow the stack.
    """
    level = 0
    for event in yaml.parse(text, Loader=_Loader):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if level > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels")


def _size_and_depth(node: yaml.Node, known: dict[int, tuple[int, int] | None]) -> tuple[int, int]:
    """Number of values in a node and its depth, with aliases expanded: a few lines can expand to billions of values."""
    if isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise ValueError(f"a number has {len(node.value)} characters, more than {_LONGEST_NUMBER}")
        if not is_utf8(node.value):
            raise ValueError("a text has half of a surrogate pair")
        return 1, 0
    if id(node) not in known:
        known[id(node)] = None
        pairs = node.value if isinstance(node, yaml.MappingNode) else [(each,) for each in node.value]
        parts = [_size_and_depth(each, known) for pair in pairs for each in pair]
        known[id(node)] = 1 + sum(count for count, _ in parts), 1 + max((depth for _, depth in parts), default=0)
    found = known[id(node)]
    if found is None:
        raise ValueError("a value contains itself")
    count, depth = found
    if count > _MOST_VALUES:
        raise ValueError(f"more than {_MOST_VALUES} values with aliases expanded")
    if depth > _DEEPEST:
        raise ValueError(f"more than {_DEEPEST} levels")
    return found

"""The JSON schema of recipes, for editors. ``python -m losspool.segmentation.config.json_schema`` writes the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from losspool.segmentation.base import EXPONENT
from losspool.segmentation.config.old_keys import OLD_KEYS
from losspool.segmentation.config.schema import Recipe

FILE = Path(__file__).with_name("recipe.schema.json")


class _Generator(GenerateJsonSchema):
    """Without a title per field, which says no more than its name. With numbers that YAML 1.1 reads as text: 1e-4."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def int_schema(self, schema: Any) -> dict[str, Any]:
        return super().int_schema(schema) | {"type": ["integer", "string"], "pattern": EXPONENT}

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return super().float_schema(schema) | {"type": ["number", "string"], "pattern": EXPONENT}


def recipe_schema() -> str:
    """The schema as JSON: names, choices and limits from the dataclasses, descriptions from their docstrings."""
    schema = TypeAdapter(Recipe).json_schema(schema_generator=_Generator)
    inherited = schema["$defs"]["Config"]["properties"]  # with docstrings, which pydantic reads of a class's own fields
    schema["properties"] |= inherited
    for key in OLD_KEYS:
        schema["$defs"][f"{key.section.capitalize()}Config"]["properties"][key.old] = key.schema
    return json.dumps({"$schema": GenerateJsonSchema.schema_dialect, **schema}, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(recipe_schema(), encoding="utf-8")

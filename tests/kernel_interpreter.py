"""Triton's interpreter as the tests of the kernels need it."""

import dataclasses
import types

import triton.language as tl
from triton.runtime import interpreter

_patch = interpreter._patch_lang
_everything = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})


def _patch_once(function):
    """The interpreter patches the language at every call of a function; once per launch is enough, and faster."""
    patched = not (tl.core.is_builtin(tl.load) or tl.core.is_builtin(tl.core.load))
    return interpreter._LangPatchScope() if patched else _patch(_everything)


_dtype_of, _dtypes = interpreter._get_np_dtype, {}


def _remembered_dtype(type_):
    """The interpreter builds a table of all types whenever it looks one up, which it does in every operation."""
    name = type_.scalar.name
    if name not in _dtypes:
        _dtypes[name] = _dtype_of(type_)
    return _dtypes[name]


def prepare() -> None:
    interpreter._patch_lang = _patch_once
    interpreter._get_np_dtype = _remembered_dtype
    # The interpreter knows no options of a launch: assertions are on for all kernels.
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, debug=True, sanitize_overflow=False)

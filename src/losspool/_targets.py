"""Logits and targets as frameworks deliver them: what is meant, or a sentence with the next step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from losspool._validation import FLOATS, assert_later, check_device, check_non_negative, check_tensor
from losspool.solver import host

_COMMON_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_RARE_INTEGERS = (torch.uint16, torch.uint32, torch.uint64)  # torch can do little but convert them
_RARE_FLOATS = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)
_TARGETS = (torch.bool, *_COMMON_INTEGERS, *_RARE_INTEGERS, *FLOATS, *_RARE_FLOATS)
_ADD_BATCH = "; add the batch's axis: input.unsqueeze(0), target.unsqueeze(0)"
_BINARY = "losspool.binary_cross_entropy_with_logits"


def check_logits(input: Any, target: Any) -> None:
    check_tensor(input, "input")
    check_tensor(target, "target")
    if input.dtype not in FLOATS:
        raise TypeError(f"input must hold logits of a floating-point dtype of 16 to 64 bits, got {input.dtype}")
    if target.dtype not in _TARGETS:
        raise TypeError(f"target must hold integers of 8 to 64 bits, floats or bools, got {target.dtype}")
    check_device(target, "target", input, "input")


def check_classes(input: Tensor) -> None:
    if input.ndim < 2:
        hint = _ADD_BATCH if input.ndim == 1 else ""
        raise ValueError(f"input must have shape (B, C, ...), got {tuple(input.shape)}{hint}")
    if input.shape[1] == 0:
        raise ValueError(f"input must have at least one class, got shape {tuple(input.shape)}")


def read_target(input: Tensor, target: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor | None]:
    """Return class indices (B, ...) of an integer dtype, or class probabilities (B, C, ...), of checked values.

    In a transform of torch.func, also whether they are sound.
    """
    classes, exact = input.shape[1], target.is_floating_point() or target.dtype == torch.bool
    if classes == 1 and (exact or target.ndim == input.ndim):
        raise ValueError(
            f"input of shape {tuple(input.shape)} has one logit per pixel, whose cross-entropy is always 0; "
            f"for a target of {target.dtype} use {_BINARY}"
        )
    if target.ndim == input.ndim and target.shape[1] == 1 and classes > 1:
        target = target.squeeze(1)
    if target.dtype == torch.bool:
        return target.to(torch.uint8), None
    if not target.is_floating_point():
        return _read_integers(target, classes, ignore_index)
    target = target.float() if target.dtype in _RARE_FLOATS else target
    if target.ndim == input.ndim:
        return target, _check_probabilities(target, ignore_index)
    return _read_whole(target, input, ignore_index)


def _read_integers(target: Tensor, classes: int, ignore_index: int | None) -> tuple[Tensor, Tensor | None]:
    if target.dtype in _COMMON_INTEGERS:
        return target, None
    labels = target.long()
    if target.dtype != torch.uint64:
        return labels, None
    wrapped = labels < 0  # they may equal ignore_index now
    if not host.host_may_look(target):
        return labels, assert_later(~wrapped.any(), "losspool: target has labels of 2**63 or more")
    if bool(wrapped.any()):
        raise _not_a_class(int(labels[wrapped][0]) + 2**64, classes, ignore_index)
    return labels, None


def _check_probabilities(target: Tensor, ignore_index: int | None) -> Tensor | None:
    if ignore_index is not None and ignore_index >= 0:  # as in torch, whose default is negative
        raise ValueError(
            f"class probabilities (a target of shape {tuple(target.shape)}) have no void label, got "
            f"ignore_index={ignore_index}; leave it out, or pool F.cross_entropy(..., reduction='none') with "
            f"losspool.max_pool(..., mask=...)"
        )
    return check_non_negative(target.detach(), "class probabilities")


def _read_whole(target: Tensor, input: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor | None]:
    values = target if target.dtype == torch.float64 else target.float()
    whole = (values == values.trunc()) & (values.abs() < 2.0**63)  # neither is true of NaN
    if not host.host_may_look(target):
        sound = assert_later(whole.all(), "losspool: target has class indices that are not whole 64-bit numbers")
        return (values if sound is None else values.masked_fill(~whole, 0.0)).long(), sound
    if bool(whole.all()):
        return target.long(), None
    wrong = float(target[~whole][0])
    if wrong.is_integer():  # as an int64 it would be another number
        raise _not_a_class(wrong, input.shape[1], ignore_index)
    raise ValueError(
        f"target of shape {tuple(target.shape)} must hold whole class indices, got {wrong!r}; class probabilities need "
        f"the shape {tuple(input.shape)} of the input"
    )


def _not_a_class(label: float, classes: int, ignore_index: int | None, hint: str = "") -> ValueError:
    return ValueError(
        f"target holds the label {label!r}, but there are {classes} classes "
        f"(0 to {classes - 1}) and ignore_index is {ignore_index}{hint}"
    )


def check_target_shape(input: Tensor, target: Tensor) -> None:
    """Check the shape of a target that ``read_target`` returned."""
    indices, got = (input.shape[0], *input.shape[2:]), tuple(target.shape)
    wanted = tuple(input.shape) if target.is_floating_point() else indices
    # Tuples of different lengths are compared too, entry by entry: torch.export would take H = C for a condition.
    if len(got) == len(wanted) and got == wanted:
        return
    hint = _shape_hint(tuple(input.shape), indices, got, target.is_floating_point())
    raise ValueError(f"target must have shape {indices} for an input of shape {tuple(input.shape)}, got {got}{hint}")


def _shape_hint(shape: tuple[int, ...], indices: tuple[int, ...], got: tuple[int, ...], floats: bool) -> str:
    """The next step for logits of ``shape``, which need labels of the shape ``indices``."""
    if got == shape:
        return "; pass one-hot classes as probabilities: target.float()"
    if len(shape) > 2 and got == (*indices, shape[1]):
        return "; pass one-hot classes as probabilities: target.movedim(-1, 1).float()"
    if len(shape) == 3 and got == shape[1:]:
        return _ADD_BATCH
    if len(shape) > 2 and got == shape[:-1]:
        return "; the classes must be the second axis: input.movedim(-1, 1)"
    if len(shape) > 2 and got == (*indices, 1):
        return "; drop the last axis: target.squeeze(-1)"
    if len(shape) > 2 and got == (*shape[:-1], 1):
        return "; the classes must be the second axis: input.movedim(-1, 1), target.squeeze(-1)"
    size, wanted = indices[1:], got[1:]
    if len(got) == len(shape) and got[1] == shape[1] and floats:  # class probabilities
        wanted = got[2:]
    if got[:1] != shape[:1] or len(wanted) != len(size):
        return ""
    if len(size) != 2:
        return "; resize the logits with F.interpolate"
    if wanted == size[::-1]:
        return "; height and width are swapped: target.transpose(-1, -2)"
    if all(logits <= labels for logits, labels in zip(size, wanted, strict=True)):
        return "; for coarse logits use losspool.upsampled_cross_entropy"
    return "; the logits are larger: reduce them with F.interpolate(input, target.shape[-2:], mode='bilinear')"


def check_enlargement(input: Tensor, target: Tensor) -> None:
    """Check the shape of a target that ``read_target`` returned, for coarse logits."""
    shape = target.shape if target.ndim == 3 else (target.shape[0], *target.shape[2:])
    probabilities = target.ndim == 4 and target.is_floating_point() and target.shape[:2] == input.shape[:2]
    if input.ndim != 4 or not (target.ndim == 3 or probabilities) or input.shape[0] != target.shape[0]:
        hint = _ADD_BATCH if (input.ndim, target.ndim) == (3, 2) else ""
        if target.ndim == input.ndim == 4 and not target.is_floating_point() and target.shape[:2] == input.shape[:2]:
            hint = "; pass one-hot classes as probabilities: target.float()"
        raise ValueError(
            f"input must have shape (B, C, h, w) and target (B, H, W), "
            f"got {tuple(input.shape)} and {tuple(target.shape)}{hint}"
        )
    for name, coarse, fine in (("high", input.shape[2], shape[1]), ("wide", input.shape[3], shape[2])):
        if not 1 <= coarse <= fine:
            raise ValueError(
                f"logits can only be upsampled: input of shape {tuple(input.shape)} is {coarse} {name}, "
                f"target of shape {tuple(target.shape)} is {fine}; reduce them with "
                f"F.interpolate(input, target.shape[-2:], mode='bilinear') and use losspool.cross_entropy"
            )


def check_labels(target: Tensor, classes: int, ignore_index: int | None) -> None:
    """Check that every label is a class or ``ignore_index``; raise or assert as ``check_non_negative`` does."""
    if target.numel() == 0:
        return
    if not host.host_may_look(target):
        target = target.long()
        valid = target == target.clamp(0, classes - 1)
        valid = valid if ignore_index is None else valid | (target == ignore_index)
        assert_later(valid.all(), f"losspool: target has labels outside [0, {classes}) other than ignore_index")
        return
    low, high = (int(bound) for bound in target.aminmax())
    if low >= 0 and high < classes:
        return
    info = torch.iinfo(target.dtype)
    if ignore_index is not None and info.min <= ignore_index <= info.max:
        low, high = (int(bound) for bound in target.masked_fill(target == ignore_index, 0).aminmax())
        if low >= 0 and high < classes:
            return
    target = target.long()
    wrong = (target < 0) | (target >= classes)
    bad = target[wrong if ignore_index is None else wrong & (target != ignore_index)]
    if classes == 1:
        hint = f"; for one logit per pixel use {_BINARY}"
    else:
        hint = "; did you mean ignore_index=255?" if bool((bad == 255).any()) else ""
    raise _not_a_class(int(bad[0]), classes, ignore_index, hint)


def read_binary_target(input: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return targets between 0 and 1 in the shape of ``input`` and its working precision.

    In a transform of torch.func, also whether they are sound.
    """
    if target.ndim == input.ndim - 1 and input.shape[1] == 1 and target.shape[0] == input.shape[0]:
        target = target.unsqueeze(1)
    if target.shape != input.shape:
        hint = "for class indices use losspool.cross_entropy"
        if target.shape == (input.shape[0], 1, *input.shape[1:]):
            hint = "drop its second axis: target.squeeze(1)"
        elif input.ndim > 2 and target.ndim == input.ndim and target.shape[:2] == input.shape[:2]:
            hint = "resize the logits with F.interpolate"
        raise ValueError(
            f"target must have the shape {tuple(input.shape)} of the input, got {tuple(target.shape)}; {hint}"
        )
    sound = None
    target = target.float() if target.dtype in (*_RARE_INTEGERS, *_RARE_FLOATS) else target
    values = target.detach() if mask is None else torch.where(mask, target.detach(), 0)
    if target.dtype == torch.bool or target.numel() == 0:
        pass
    elif not host.host_may_look(target):
        sound = assert_later(((values >= 0) & (values <= 1)).all(), "losspool: target must be between 0 and 1")
    else:
        outside = ~((values >= 0) & (values <= 1))  # NaN too
        if bool(outside.any()):
            only_255 = bool(((values == 0) | (values == 255)).all())
            hint = "pass a mask of 0 and 255 as target / 255" if only_255 else "leave void pixels out with mask"
            raise ValueError(f"target must be between 0 and 1, got {float(values[outside][0])!r}; {hint}")
    return target.to(torch.float64 if input.dtype == torch.float64 else torch.float32), sound

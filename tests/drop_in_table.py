"""The table of docs/drop-in.md: every way to call nn.CrossEntropyLoss, and what losspool makes of it.

``python tests/drop_in_table.py`` writes it again. Beside each call stands whether losspool gives, at p = ∞ and
scope="batch", the mean of torch's losses per pixel, or the sentence with which it refuses.
"""

import math
import warnings
from pathlib import Path

import torch
from torch import nn

import losspool

PAGE = Path(__file__).parents[1] / "docs" / "drop-in.md"
BEGIN, END = "<!-- behaviours -->\n", "<!-- /behaviours -->\n"
EQUAL = "the mean of torch's losses"
WEIGHT = torch.tensor([0.5, 2.0, 0.0, 1.0])


def inputs(*size, images=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(images, 4, *size, generator=g), torch.randint(0, 4, (images, *size), generator=g)


def with_void(labels, void):
    return labels.flatten().index_fill(0, torch.tensor([1, 4]), void).view(labels.shape)


INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
LOGITS, LABELS = inputs(3, 5)
SHARES = inputs(3, 5, seed=1)[0].softmax(1)
ONE_HOT = nn.functional.one_hot(LABELS, 4).movedim(-1, 1)

# What is called, its logits and target, its options, and the target as torch takes it if that differs.
CALLS = [
    *((f"labels of {dtype}", LOGITS, LABELS.to(dtype), {}, LABELS) for dtype in INTEGERS),
    *((f"whole numbers of {dtype}", LOGITS, LABELS.to(dtype), {}, LABELS) for dtype in FLOATS),
    ("labels of torch.bool", LOGITS, LABELS > 1, {}, (LABELS > 1).long()),
    ("labels of shape (B, 1, H, W)", LOGITS, LABELS.unsqueeze(1), {}, LABELS),
    ("a fractional label", LOGITS, LABELS + 0.5, {}, LABELS),
    ("a label that is not a class", LOGITS, LABELS + 1, {}, LABELS),
    ("void pixels, `ignore_index=-100`", LOGITS, with_void(LABELS, -100), {}, None),
    ("void pixels, `ignore_index=255`", LOGITS, with_void(LABELS, 255), {"ignore_index": 255}, None),
    ("void pixels, `ignore_index=1`", LOGITS, LABELS, {"ignore_index": 1}, None),
    ("`ignore_index=None`", LOGITS, LABELS, {"ignore_index": None}, None),
    ("nothing but void pixels", LOGITS, torch.full_like(LABELS, -100), {}, None),
    ("`label_smoothing=0.1`", LOGITS, LABELS, {"label_smoothing": 0.1}, None),
    ("`weight` by position, a tensor", LOGITS, LABELS, {"weight": WEIGHT}, None),
    ("`weight` by position, a list", LOGITS, LABELS, {"weight": WEIGHT.tolist()}, None),
    ("`weight` and `label_smoothing=0.1`", LOGITS, LABELS, {"weight": WEIGHT, "label_smoothing": 0.1}, None),
    ("class probabilities", LOGITS, SHARES, {}, None),
    ("class probabilities of torch.float16", LOGITS, SHARES.half(), {}, SHARES.half().float()),
    ("… with `weight`", LOGITS, SHARES, {"weight": WEIGHT}, None),
    ("… with `label_smoothing=0.1`", LOGITS, SHARES, {"label_smoothing": 0.1}, None),
    ("… with `ignore_index=255`", LOGITS, SHARES, {"ignore_index": 255}, None),
    ("one-hot floats", LOGITS, ONE_HOT.float(), {}, None),
    ("one-hot integers", LOGITS, ONE_HOT, {}, None),
    ("logits (B, C)", *inputs(), {}, None),
    ("logits (B, C, L)", *inputs(7), {}, None),
    ("logits (B, C, D, H, W)", *inputs(2, 3, 5), {}, None),
    ("unbatched logits (C,)", LOGITS[0, :, 0, 0], LABELS[0, 0, 0], {}, None),
    ("an empty batch", *inputs(3, 5, images=0), {}, None),
    ("half-precision logits", LOGITS.half(), LABELS, {}, None),
    ("logits (B, H, W, C)", LOGITS.movedim(1, -1), LABELS, {}, None),
    ("labels of another size", LOGITS, inputs(6, 10)[1], {}, None),
    ("one logit per pixel, float labels", LOGITS[:, :1], LABELS[:, None].clamp(max=1).float(), {}, None),
    ('`reduction="none"`', LOGITS, LABELS, {"reduction": "none"}, None),
    ('`reduction="sum"`', LOGITS, LABELS, {"reduction": "sum"}, None),
    ("`size_average=False`", LOGITS, LABELS, {"size_average": False}, None),
    ("`reduce=False`", LOGITS, LABELS, {"reduce": False}, None),
]


def ours(logits, target, options):
    """By position, as nn.CrossEntropyLoss takes its weight."""
    named = {name: value for name, value in options.items() if name != "weight"}
    criterion = losspool.CrossEntropyLoss(options.get("weight"), p=math.inf, scope="batch", **named)
    return criterion(logits, target)


def plain_mean(logits, target, options):
    """Of torch's losses per pixel, in float64. Torch itself divides by the sum of the labels' class weights."""
    options = {name: value for name, value in options.items() if value is not None}
    if "weight" in options:
        options["weight"] = torch.as_tensor(options["weight"]).double()
    soft = target.is_floating_point()
    losses = nn.CrossEntropyLoss(**options, reduction="none")(logits.double(), target.double() if soft else target)
    return losses.mean() if soft else losses[target != options.get("ignore_index", -100)].mean()


def outcome(logits, target, options, for_torch):
    logits = logits.clone().requires_grad_()
    try:
        found = ours(logits, target, options)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    expected = plain_mean(logits, target if for_torch is None else for_torch, options)
    if expected.isnan():
        found.backward()
        assert torch.equal(logits.grad, torch.zeros_like(logits))
        return f"{found.item():g}, on the graph, with a gradient of 0"
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=1e-7)
    return EQUAL


def torch_outcome(logits, target, options, _):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated arguments
            return "NaN" if nn.CrossEntropyLoss(**options)(logits, target).isnan().any() else "works"
    except Exception as error:  # as many kinds as there are mistakes
        return f"raises {type(error).__name__}"


def table():
    lines = ["| call | torch | losspool |", "|---|---|---|"]
    for name, *call in CALLS:
        lines.append(f"| {name} | {torch_outcome(*call)} | {outcome(*call)} |")
    return "\n".join(lines) + "\n"


def split_page(page):
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    return before, inside, after


if __name__ == "__main__":
    before, _, after = split_page(PAGE.read_text())
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}")

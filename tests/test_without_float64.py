"""Devices without float64, such as Apple's MPS: their path, run on the CPU. No such device was available."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torchgen
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import problems
from losspool import (
    CrossEntropyLoss,
    PoolingStats,
    binary_cross_entropy_with_logits,
    cross_entropy,
    max_pool,
    pooling_weights,
    reference,
    upsampled_cross_entropy,
)
from losspool.integrations.recording import Recorder
from losspool.solver import host, powers

LOGITS = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 3, (2, 4, 5), generator=torch.Generator().manual_seed(1))
SHARES = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(2)).softmax(1)
FINE = torch.randint(0, 3, (2, 13, 9), generator=torch.Generator().manual_seed(3))


def logits():
    return LOGITS.clone().requires_grad_()


def monitored():
    recorder, loss = Recorder(1, None, 2), CrossEntropyLoss()
    recorder.attach(loss)
    recorder.begin(0)
    result = loss(logits(), LABELS)
    assert "pooling/saturated" in recorder.end().scalars
    recorder.detach()
    return result


CALLS = {
    "labels": lambda: cross_entropy(logits(), LABELS),
    "p = 1": lambda: cross_entropy(logits(), LABELS, p=1, m=3),
    "whole floats": lambda: cross_entropy(logits(), LABELS.float(), ignore_index=None),
    "class weights": lambda: cross_entropy(logits(), LABELS, [1, 2, 3], label_smoothing=0.1, scope="batch"),
    "statistics": lambda: cross_entropy(logits(), LABELS, stats=PoolingStats()),
    "trimmed": lambda: cross_entropy(logits(), LABELS, trim=0.1),
    "one per pool": lambda: cross_entropy(logits(), LABELS, reduction="pool"),
    "probabilities": lambda: cross_entropy(logits(), SHARES),
    "binary": lambda: binary_cross_entropy_with_logits(logits(), SHARES, pos_weight=2.0, mask=LOGITS > -1),
    "upsampled": lambda: upsampled_cross_entropy(logits(), FINE),
    "upsampled, corners": lambda: upsampled_cross_entropy(logits(), FINE, align_corners=True, stats=PoolingStats()),
    "losses": lambda: max_pool(LOGITS.abs().requires_grad_(), mask=LOGITS > -1),
    "weights": lambda: pooling_weights(LOGITS.abs()),
    "monitored": monitored,
}


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    monkeypatch.setattr(host, "has_float64", lambda tensor: False)


def run(call):
    found = call()
    if found.requires_grad:
        found.sum().backward()
    return found


class NoFloat64(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            assert not isinstance(leaf, torch.Tensor) or leaf.dtype != torch.float64, function
        return result


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("autocast", [False, True])
def test_no_operator_gets_or_returns_a_float64(name, autocast, monkeypatch):
    """Forward and backward; and the result is the same."""
    expected = CALLS[name]()
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    monkeypatch.setattr(host, "has_float64", lambda tensor: False)
    with NoFloat64(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        found = run(CALLS[name])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


@cache
def declared():
    """Torch's operators, as its own declarations list them: the devices that each has code for."""
    path = Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml"
    entries = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {entry["func"].split("(")[0]: entry for entry in entries}


def devices(name):
    entry = declared()[name]
    entry = declared()[entry["structured_delegate"]] if "structured_delegate" in entry else entry
    return ", ".join(entry.get("dispatch") or ["Composite"])


def runs_on_apple(name):
    """Either it has code for MPS, or it is made of operators, of which the one that writes has."""
    if "Composite" not in devices(name):
        return "MPS" in devices(name)
    writing = [each for each in declared() if each.split(".")[0] == name.split(".")[0].rstrip("_") and "out" in each]
    coded = [devices(each) for each in writing if "CPU" in devices(each)]
    return not coded or any("MPS" in each for each in coded)


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.add(function.name().removeprefix("aten::"))
        return function(*args, **(kwargs or {}))


def test_every_operator_exists_for_apples_devices(without):
    with Names() as names:
        for call in CALLS.values():
            run(call)
    assert len(names.seen) > 50
    assert [name for name in sorted(names.seen) if not runs_on_apple(name)] == []
    assert not runs_on_apple("frexp.Tensor"), "else this test sees nothing"


def test_significand_and_exponent_of_every_kind_of_number():
    numbers = torch.cat([losses for _, losses, _ in problems.matrix(100)]).float()
    denormal = torch.tensor([1e-45, 3e-42, 1.1754942e-38, 2.0**-126, 2.0**-100, 2.0**-101, 3.4e38, 1.0])
    numbers = torch.cat([numbers[numbers > 0], denormal])
    for found, expected in zip(powers._significand_and_exponent(numbers), torch.frexp(numbers), strict=True):
        assert torch.equal(found, expected)


def test_the_plain_mean_of_many_equal_losses(without):
    """Their running sum, in float32, comes close to the room."""
    losses = torch.full((1, 600_000), 0.7)
    assert max_pool(losses, p=torch.inf, m="1px").item() == pytest.approx(losses.double().mean().item(), rel=1e-6)


@pytest.mark.parametrize(("n", "share"), [*problems.CRUMBS, (302_501, 0.25)])
def test_m_as_a_share_of_the_pixels(n, share, without):
    """Sums of the powers of many losses round more than the room that is left at one of them."""
    losses = problems.losses(n)["exponential"]
    for p in (1.0, 1.001, 1.3):
        expected = reference.pool(losses, p=p, m=share * n).value
        assert max_pool(losses[None], p=p, m=share).item() == pytest.approx(expected, rel=1e-6), p


def test_a_pool_of_several_processes_is_refused(without, monkeypatch):
    monkeypatch.setattr("losspool._calls.resolve_group", lambda *_: object())
    monkeypatch.setattr("losspool._calls.shared_errors", lambda *_: torch.no_grad())
    with pytest.raises(ValueError, match=r'scope="global" adds up in float64, which cpu does not have; use scope="ba'):
        cross_entropy(LOGITS, LABELS, scope="global")


def test_a_product_on_a_device_is_not_rounded_by_autocast(monkeypatch):
    """The gradient of coarse logits is two products of matrices there."""
    coarse = torch.randn(1, 3, 9, 7, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(3, (1, 40, 33), generator=torch.Generator().manual_seed(2))

    def gradient(enabled):
        logits = coarse.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            upsampled_cross_entropy(logits, labels).backward()
        return logits.grad

    expected = gradient(False)
    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    monkeypatch.setattr(host, "has_float64", lambda tensor: False)
    torch.testing.assert_close(gradient(True), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("there", [False, True])
def test_intels_cards_say_whether_they_have_float64(there, monkeypatch):
    host._xpu_has_float64.cache_clear()
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: SimpleNamespace(has_fp64=there))
    assert host.has_float64(SimpleNamespace(device=torch.device("xpu", 0))) is there
    host._xpu_has_float64.cache_clear()

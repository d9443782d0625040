"""When the kernels are used: by device, dtype, card, Triton's version, and the switch."""

import sys
import types

import pytest
import torch

from losspool import kernels

GPU = torch.device("cuda", 0)


@pytest.fixture
def card(monkeypatch):
    """A machine with a new enough card and Triton; a test makes one of them too old."""
    triton = types.ModuleType("triton")
    triton.__version__ = "3.7.1"
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "losspool.kernels.operators", types.ModuleType("operators"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.delenv("LOSSPOOL_KERNELS", raising=False)
    return triton


def usable(dtype=torch.float32, device=GPU):
    return kernels.usable(types.SimpleNamespace(dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_on_a_card(card, dtype):
    assert usable(dtype)


def test_not_for_float64_or_other_devices(card):
    assert not usable(torch.float64)
    for device in ("cpu", "mps", "meta", "xpu"):
        assert not usable(device=torch.device(device))


def test_not_on_an_old_card(card, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert not usable()
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert not usable()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    assert usable()


def test_not_on_a_card_of_another_family(card, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (11, 0))  # gfx1100
    assert kernels.unusable(GPU) == "the device has compute capability 11.0, and AMD's must be 9.x"


def test_not_with_an_old_triton_or_none(card, monkeypatch):
    card.__version__ = "3.6.0"
    assert not usable()
    card.__version__ = "3.10.0+git1234"
    assert usable()
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not usable()


def test_the_reason_names_what_is_missing(card, monkeypatch):
    assert kernels.unusable(GPU) is None
    assert kernels.unusable(torch.device("mps")) == "there are none for mps devices"
    card.__version__ = "3.6.0"
    assert kernels.unusable(GPU) == "Triton is version 3.6.0, and 3.7 is needed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert kernels.unusable(GPU) == "the device has compute capability 7.5, and 8.0 is needed"
    monkeypatch.setenv("LOSSPOOL_KERNELS", "0")
    assert kernels.unusable(GPU) == "LOSSPOOL_KERNELS=0 switches them off"


def test_the_switch(card, monkeypatch):
    monkeypatch.setenv("LOSSPOOL_KERNELS", "0")
    assert not usable()
    monkeypatch.setenv("LOSSPOOL_KERNELS", "interpret")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(
        ValueError, match="LOSSPOOL_KERNELS=interpret needs the environment variable TRITON_INTERPRET=1"
    ):
        usable(device=torch.device("cpu"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert usable(device=torch.device("cpu"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_switch_that_means_nothing(card, monkeypatch, device):
    monkeypatch.setenv("LOSSPOOL_KERNELS", "off")
    with pytest.raises(ValueError, match="LOSSPOOL_KERNELS must be 0, 1 or interpret, got 'off'"):
        usable(device=torch.device(device))
    monkeypatch.setenv("LOSSPOOL_KERNELS", "")
    assert usable(device=torch.device(device)) == (device == "cuda")

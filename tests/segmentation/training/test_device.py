"""On an accelerator the host runs ahead: it waits for the device at log lines, not at every step. Shown without a GPU.

Some tests train on the meta device, whose tensors have no values: whatever reads one fails. The others train on the CPU
as on an accelerator, with a stand-in for the device's events.
"""

import itertools
import json
import signal
from contextlib import closing, nullcontext
from types import SimpleNamespace

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.accelerators import CPUAccelerator
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.base.process import Interrupt, Interrupted
from losspool.segmentation.config.recipes import load_config
from losspool.segmentation.runs.checkpoints import steps_in
from losspool.segmentation.training import step_stats, trainer
from losspool.segmentation.training.loader import training_batches
from losspool.segmentation.training.step_stats import StepStats
from losspool.segmentation.training.trainer import Trainer
from losspool.solver import host
from runs_for_tests import assert_equal, at_step, checkpoint, metrics, train, write_recipe

BLOCK_SECONDS = 0.25


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path)


@pytest.fixture
def events(monkeypatch):
    """A stand-in for the device's events. It notes when each is waited for; every recording takes the device 250 ms."""
    noted = SimpleNamespace(step=0, waits=[], time=itertools.count())

    class Event:
        def __init__(self, enable_timing=False):
            self.timed = enable_timing

        def record(self):
            self.step, self.time = noted.step, next(noted.time)

        def synchronize(self):
            noted.waits.append((self.step, noted.step))

        def elapsed_time(self, end):
            assert self.timed
            assert end.timed
            return 1000 * BLOCK_SECONDS * (end.time - self.time)

    real = Trainer._step

    def counted(self, *arguments):
        noted.step = self.state.step + 1
        return real(self, *arguments)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(Trainer, "_step", counted)
    return noted


@pytest.fixture
def ahead(monkeypatch, events):
    """Have the trainer read values as on an accelerator. The loss is computed as on the CPU, to the bit."""
    monkeypatch.setattr(step_stats, "host_waits", lambda device: True)
    monkeypatch.setattr(trainer, "host_waits", lambda device: True)
    return events


class NoReading(TorchFunctionMode):
    """Fails at calls by which the host reads values of a device, or gives it some, and waits for it."""

    READS = ("cpu", "item", "numpy", "tolist", "__array__", "__bool__", "__float__", "__index__", "__int__")
    GIVES = ("tensor", "as_tensor", "new_tensor")

    def __init__(self, device):
        super().__init__()
        self.device = device

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in self.READS:
            assert args[0].device.type != self.device, f"Tensor.{name} makes the host wait"
        result = function(*args, **(kwargs or {}))
        if name in self.GIVES:
            assert result.device.type != self.device, f"{name} makes the host wait"
        return result


class NoCopies(TorchDispatchMode):
    """Fails at operators that read values of a device, or whose result's size depends on them, and at copies from it.

    ``given`` has an entry for every copy to the device: whether the host waited for it.
    """

    READS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "unique", "_unique2", "bincount")

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.given = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name, kwargs = function.name().removeprefix("aten::").split(".")[0], kwargs or {}
        tensors = [each for each in tree_leaves(args) if isinstance(each, Tensor)]
        if any(each.device.type == self.device for each in tensors):
            assert name not in self.READS, f"{name} makes the host wait"
            indices = args[1] if name in ("index", "index_put", "index_put_") else ()
            masks = [each for each in indices if each is not None and each.dtype in (torch.bool, torch.uint8)]
            assert not masks, "indexing with a mask makes the host wait"
        if name in ("_to_copy", "copy_"):
            source, target = tensors[-1].device.type, (kwargs.get("device") or tensors[0].device).type
            assert source != self.device or target == self.device, f"{name} copies to the host"
            if source != target:
                self.given.append(not (kwargs.get("non_blocking") or True in args[2:]))
        return function(*args, **kwargs)


@pytest.fixture
def meta(monkeypatch, events):
    """Train on the meta device."""

    class AnyDevice(CPUAccelerator):
        def setup_device(self, device):
            pass

    # Named, because Fabric would look for Slurm's commands otherwise, and warn where they are installed.
    alone = LightningEnvironment()
    fabric = Fabric(accelerator=AnyDevice(), strategy=SingleDeviceStrategy(torch.device("meta")), plugins=alone)
    monkeypatch.setattr(trainer, "join", lambda *_: fabric)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # there is none for this device
    # Else the network would get new parameters as it moves to this device, of which the optimiser knows nothing.
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield events
    torch.__future__.set_swap_module_params_on_conversion(False)


# random_pixels is missing: it counts the valid pixels of each image on the host.
@pytest.mark.parametrize(
    "more",
    [
        *(
            ("method=base",),
            ("method=lmp",),
            ("method=bootstrapping",),
            ("method=median_frequency",),
            ("method=focal",),
        ),
        ("train.optimizer=adamw", "train.ema=0.9", "train.clip=0.1"),
    ],
)
def test_a_step_takes_no_value_from_its_device(recipe, tmp_path, meta, more):
    """And gives it images and labels alone, without waiting."""
    options = (*more, "train.accumulate=2", "train.log_every=12", "sampling.lag=32")
    trainer = Trainer(load_config(recipe, options), tmp_path / "run")
    batches = training_batches(trainer.config, trainer.fabric, trainer.data, trainer.sampler, 0)
    with closing(batches), Interrupt() as interrupt, NoReading("meta"), NoCopies("meta") as seen:
        for _ in range(2):
            assert not trainer._step(batches, interrupt)
    assert trainer.state.step == 2
    assert next(trainer.model.module.parameters()).device.type == "meta"
    assert seen.given == [False] * 2 * 2 * 2
    assert meta.waits == []


READS = {
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", non_blocking=True),
    "copy_": lambda x: torch.zeros(3).copy_(x),
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "bool": lambda x: bool(x[0] > 0),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "mask": lambda x: x[x > 0],
    "equal": lambda x: torch.equal(x, x),
    "tensor": lambda x: torch.tensor(1.0, device=x.device),
    "new_tensor": lambda x: x.new_tensor([1.0]),
}
ON_THE_CPU = READS.keys() - {"to", "copy_"}  # no copy leaves the device


@pytest.mark.parametrize(
    ("where", "name"), [*(("meta", each) for each in READS), *(("cpu", each) for each in sorted(ON_THE_CPU))]
)
def test_a_read_would_be_seen(where, name):
    values = torch.ones(3, device=where)
    with NoReading(where), NoCopies(where), pytest.raises(AssertionError, match="host"):
        READS[name](values)


def test_nothing_is_read_between_two_log_lines(recipe, tmp_path, monkeypatch, ahead):
    """With values this time, and with the loss of accelerators. The metrics are the CPU's, up to rounding."""
    options = ("train.log_every=6", "sampling.lag=32", "train.steps=18", "train.checkpoint_every=18")
    with monkeypatch.context() as patch:
        patch.setattr(step_stats, "host_waits", lambda device: False)
        patch.setattr(trainer, "host_waits", lambda device: False)
        train(recipe, tmp_path / "cpu", *options)
    real, steps = Trainer._step, []

    def watched(self, *arguments):
        if self.state.step == 0 or (self.state.step + 1) % 6 == 0:  # at the first one, the loader draws a seed
            return real(self, *arguments)
        steps.append(self.state.step)
        with NoReading("cpu"), NoCopies("cpu"):
            return real(self, *arguments)

    monkeypatch.setattr(host, "host_may_look", lambda tensor: False)
    monkeypatch.setattr(Trainer, "_step", watched)
    train(recipe, tmp_path / "ahead", *options)
    assert len(steps) == 14
    for line, other in zip(metrics(tmp_path / "ahead"), metrics(tmp_path / "cpu"), strict=True):
        assert line.keys() == other.keys()
        for key, value in other.items():
            assert line[key] == (value if key == "split" else pytest.approx(value, rel=1e-5, abs=1e-5)), key


@pytest.mark.parametrize(
    ("log_every", "options"),
    [(1, ()), (40, ("data.workers=2", "train.accumulate=2"))],
)
def test_when_values_are_read_changes_no_bit(recipe, tmp_path, monkeypatch, events, log_every, options):
    """Not even of the crops, which are aimed by the IoU of nine steps ago."""
    options = (f"train.log_every={log_every}", "train.lr=0.2", "sampling.mix=1.0", *options)
    options += ("train.steps=25", "train.validate_every=25", "train.checkpoint_every=25")
    train(recipe, tmp_path / "cpu", *options)
    monkeypatch.setattr(step_stats, "host_waits", lambda device: True)
    monkeypatch.setattr(trainer, "host_waits", lambda device: True)
    train(recipe, tmp_path / "ahead", *options)
    assert metrics(tmp_path / "ahead") == metrics(tmp_path / "cpu")
    assert_equal(checkpoint(tmp_path / "ahead", 25), checkpoint(tmp_path / "cpu", 25))


@pytest.mark.parametrize(("workers", "age"), [(0, 9), (2, 5)])
def test_the_sampler_reads_copies_that_were_made_in_the_meantime(recipe, tmp_path, ahead, workers, age):
    """Between log lines it waits only for copies that started at least half of its lag ago."""
    options = (f"data.workers={workers}", "train.log_every=40", "train.steps=40", "train.validate_every=40")
    train(recipe, tmp_path / "run", *options, "train.checkpoint_every=40")
    between = [(started, now) for started, now in ahead.waits if now < 40]
    assert [now for _, now in between] == list(range(age + 2, 40))  # step 1 is read before step age + 2
    assert min(now - started - 1 for started, now in between) == age - age // 2


def test_few_steps_stay_on_the_device_until_the_log_line(recipe, tmp_path, monkeypatch, ahead):
    """Without any copy before it."""
    copies, real = [], step_stats.HostCopy
    monkeypatch.setattr(step_stats, "HostCopy", lambda values: copies.append(len(values)) or real(values))
    train(recipe, tmp_path / "run", "sampling.lag=32", "train.checkpoint_every=12", "train.validate_every=12")
    assert copies == [4, 4, 4]


def poison(patch, step):
    """Have a weight become NaN as the step begins."""
    networks = []
    real = Trainer.run
    patch.setattr(Trainer, "run", lambda self: networks.append(self.model.module) or real(self))
    at_step(patch, step, lambda: torch.nn.init.constant_(next(networks[0].parameters()), torch.nan))


@pytest.mark.parametrize(
    "options",
    [
        ("train.log_every=10", "train.validate_every=12", "train.accumulate=2"),  # found by the log line
        ("train.log_every=12", "train.validate_every=9", "train.previews=0"),  # by the validation
        ("train.log_every=12", "train.validate_every=12"),  # by the checkpoint of step 10
        ("train.log_every=20", "train.validate_every=20", "train.steps=20", "train.checkpoint_every=18"),  # the sampler
    ],
)
def test_a_loss_that_is_not_finite_is_found_later_with_the_same_words(recipe, tmp_path, monkeypatch, events, options):
    """The step and its images are named, and nothing of the steps since is written."""
    texts = {}
    for name in ("cpu", "ahead"):
        with monkeypatch.context() as patch:
            for module in (step_stats, trainer):
                patch.setattr(module, "host_waits", lambda device, waits=name == "ahead": waits)
            poison(patch, 7)
            with pytest.raises(UserError) as caught:
                train(recipe, tmp_path / name, *options)
        texts[name] = str(caught.value)
    assert "the loss is not finite at step 7, on the images 00" in texts["cpu"]
    assert texts["ahead"] == texts["cpu"]
    assert written(tmp_path / "ahead") == written(tmp_path / "cpu")


def written(out):
    """What a run has in its folder: steps of checkpoints, metrics, and how it ended."""
    lines = metrics(out) if (out / "metrics.jsonl").exists() else []
    return steps_in(out / "checkpoints"), lines, json.loads((out / "run.json").read_text())["status"]


def test_after_a_loss_that_is_not_finite_the_run_can_be_resumed(recipe, tmp_path, monkeypatch, ahead):
    train(recipe, tmp_path / "whole")
    with monkeypatch.context() as patch:
        poison(patch, 7)
        with pytest.raises(UserError, match="the loss is not finite at step 7"):
            train(recipe, tmp_path / "parts")
    assert steps_in(tmp_path / "parts" / "checkpoints") == [5, 6]
    train(recipe, tmp_path / "parts", resume=True)
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def test_a_stop_after_a_loss_that_is_not_finite_saves_nothing(recipe, tmp_path, monkeypatch, ahead):
    poison(monkeypatch, 7)
    at_step(monkeypatch, 8, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(UserError, match="the loss is not finite at step 7"):
        train(recipe, tmp_path / "run", "train.log_every=12", "train.validate_every=12")
    assert steps_in(tmp_path / "run" / "checkpoints") == [5]


@pytest.mark.parametrize("stop", [3, 8])
def test_a_stop_takes_effect_after_the_step(recipe, tmp_path, monkeypatch, ahead, stop):
    """And changes nothing: what was still to be read is in the checkpoint."""
    options = ("train.log_every=12", "train.validate_every=12", "train.checkpoint_every=12")
    train(recipe, tmp_path / "whole", *options)
    with monkeypatch.context() as patch:
        at_step(patch, stop, lambda: signal.raise_signal(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(recipe, tmp_path / "parts", *options)
    assert steps_in(tmp_path / "parts" / "checkpoints") == [stop]
    train(recipe, tmp_path / "parts", *options, resume=True)
    assert_equal(checkpoint(tmp_path / "parts", 12), checkpoint(tmp_path / "whole", 12))
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")


def test_the_time_of_the_device_is_measured_by_its_events(recipe, tmp_path, ahead):
    """Three blocks of code per step: forward to backward, the gradient's norm, and the optimiser."""
    train(recipe, tmp_path / "run", "sampling.lag=32")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    times = {line["step"]: line["time"]["compute"] for line in lines if line["split"] == "train"}
    assert times == {step: 3 * BLOCK_SECONDS * step for step in (4, 8, 12)}


def test_a_copy_to_the_host_starts_without_waiting(ahead):
    """What the device does after it is not waited for either."""
    copies = []

    class Copies(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.copy_.default:
                copies.append(args[2:])
            return function(*args, **(kwargs or {}))

    ahead.step = 1
    values = torch.rand(3)
    with Copies():
        copy = step_stats.HostCopy(values)
    assert copies == [(True,)]  # non_blocking
    assert ahead.waits == []
    expected = values.clone()
    values.zero_()
    ahead.step = 5
    assert torch.equal(copy.read(), expected)
    assert ahead.waits == [(1, 5)]


def test_a_step_that_raises_an_error_is_read_again():
    queue = step_stats.UnreadSteps(age=9)
    for number in (1, 2, 3):
        stats = StepStats(torch.full((7 + 3 + 9 + 4,), float(number), dtype=torch.float64), 3)
        queue.add(step_stats.Step(number, stats, stats, [], []))
    seen = []

    def read(until):
        for step, total in queue.read(until):
            seen.append((step.number, total.skipped))
            if step.number == 2:
                raise UserError("not finite")

    read(1)
    for _ in range(2):
        with pytest.raises(UserError):
            read(3)
    assert seen == [(1, 1), (2, 2), (2, 2)]

"""Work on several CPU threads: the same bits, no setting changed, and no process left waiting."""

import multiprocessing
import subprocess
import sys
import threading

import pytest
import torch

from losspool import PoolingStats, cross_entropy, max_pool, upsampled_cross_entropy
from losspool.ops import logits as blocks
from losspool.solver import threads


@pytest.fixture
def several():
    """Two threads, as the tests otherwise have one."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def results(seed=0):
    """The loss, its statistics and its gradient, from logits large enough to be divided; then of other functions."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 5, 120, 160, generator=g, requires_grad=True)
    labels = torch.randint(0, 5, (3, 120, 160), generator=g)
    labels[torch.rand(labels.shape, generator=g) < 0.1] = 255
    coarse = torch.randn(3, 5, 15, 20, generator=g, requires_grad=True)
    stats = PoolingStats()
    loss = cross_entropy(logits, labels, ignore_index=255, stats=stats)
    upsampled = upsampled_cross_entropy(coarse, labels, ignore_index=255, label_smoothing=0.1)
    pooled = max_pool(logits.detach().abs(), p=1.001)
    found = [loss, upsampled, pooled, stats.weights, stats.alpha, stats.prediction]
    found += [*torch.autograd.grad(loss, logits), *torch.autograd.grad(upsampled, coarse)]
    return [value.detach() for value in found]


def test_the_number_of_threads_does_not_change_a_bit(several, monkeypatch):
    monkeypatch.setattr(blocks, "_CPU_BLOCK", 1 << 14)
    monkeypatch.setattr(threads, "_PER_THREAD", 1)
    divided = results()
    again = results()
    torch.set_num_threads(1)
    for one, two, three in zip(results(), divided, again, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)


@pytest.mark.parametrize("begin", ["threading.Thread(target=after_main).start()", "atexit.register(train)"])
def test_a_thread_outlives_the_main_thread(begin):
    """Python no longer starts threads then, and one that trains in the background must not notice."""
    script = f"""
import atexit, threading, time, torch, losspool
torch.set_num_threads(2)
def after_main():
    threading.main_thread().join()
    time.sleep(0.2)
    train()
def train():
    losses = torch.linspace(0.0, 1.0, 1 << 20).expand(2, -1)
    print(float(losspool.max_pool(losses)))
{begin}
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stderr) == (0, "")
    losses = torch.linspace(0.0, 1.0, 1 << 20).expand(2, -1)
    assert float(found.stdout) == float(max_pool(losses))


def test_work_is_divided(several):
    def start():
        return lambda item: (item, threading.current_thread().name, torch.get_num_threads())

    found = threads.spread(start, range(100), numbers=1 << 20)
    assert [item for item, _, _ in found] == list(range(100))
    assert all(name.startswith("losspool") and number == 1 for _, name, number in found)


@pytest.mark.parametrize(("number", "numbers"), [(1, 1 << 20), (2, 1000)])
def test_one_thread_and_little_work_stay_here(number, numbers, several):
    torch.set_num_threads(number)
    names = threads.spread(lambda: lambda item: threading.current_thread().name, range(3), numbers)
    assert set(names) == {threading.current_thread().name}


def test_torch_keeps_its_threads(several):
    """Of this thread, and of threads that start later."""
    results()
    later = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert [torch.get_num_threads(), *later] == [2, 2]


def test_an_error_is_raised_here(several):
    def start():
        return lambda item: 1 // item

    with pytest.raises(ZeroDivisionError):
        threads.spread(start, [1, 1, 0, 1], numbers=1 << 20)
    labels = torch.zeros(2, 200, 200, dtype=torch.long)
    labels[1, 7, 7] = 9
    with pytest.raises(ValueError, match="the label 9, but there are 4 classes"):
        cross_entropy(torch.zeros(2, 4, 200, 200), labels)


def test_inference_mode(several):
    logits, labels = torch.randn(2, 4, 200, 200), torch.randint(0, 4, (2, 200, 200))
    expected = cross_entropy(logits, labels)
    with torch.inference_mode():
        assert cross_entropy(logits, labels) == expected
        assert cross_entropy(logits.clone(), labels) == expected


def _squares():
    return threads.spread(lambda: lambda item: item * item, range(10), numbers=1 << 20)


def _squares_in_a_fork(pipe):
    pipe.send(_squares())


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_it_has_not(several):
    """As the workers of a loader. (After operations on several threads, torch itself would hang there.)"""
    expected = _squares()
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_squares_in_a_fork, args=(theirs,), daemon=True)
    process.start()
    try:
        assert mine.poll(60), "the forked process hangs"
        assert mine.recv() == expected
    finally:
        process.kill()
        process.join()

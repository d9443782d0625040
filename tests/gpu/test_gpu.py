"""What only a GPU can show: ``pytest -m gpu``. Skipped where there is none."""

import math
import socket

import pytest
import torch
import torch.multiprocessing

import losspool
import problems
import tolerances
from gpu_batches import batch, compare_rank, gradient
from losspool import kernels, reference

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.fixture(autouse=True)
def _kernels_are_used():
    assert kernels.usable(torch.zeros(1, device="cuda")), "this card or this Triton is too old for the kernels"


def assert_float64(function, logits, labels, **options):
    exact = logits.detach().cpu().double().requires_grad_()
    loss, got = gradient(function, logits, labels, ignore_index=255, **options)
    truth, expected = gradient(function, exact, labels.cpu(), ignore_index=255, **options)
    assert loss.item() == pytest.approx(truth.item(), rel=1e-6)
    atol = max(torch.finfo(got.dtype).eps, tolerances.GRADIENT) * float(expected.abs().max())
    torch.testing.assert_close(got.cpu().double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100, 10_000, 1_000_000])
def test_hard_matrix(n):
    for names, rows, m in problems.stacked(n):
        for p in problems.P_VALUES if n < 1_000_000 else (1.0, 1.001, 1.3, 1000.0):
            share = m / n
            weights = losspool.pooling_weights(rows.cuda(), p=p, m=share).cpu()
            for name, losses, found in zip(names, rows, weights, strict=True):
                truth = reference.pool(losses, p=p, m=max(share * n, 1.0))
                errors = (found.double() - truth.weights).abs()[losses > 0] / truth.tau
                assert (errors <= tolerances.weight(p)).all(), (name, p, m, errors.max())
                value = losspool.max_pool(losses[None].cuda(), p=p, m=share).item()
                allowed = max(tolerances.VALUE * truth.value, tolerances.one_ulp(truth.value))
                assert abs(value - truth.value) <= allowed, (name, p, m, value, truth.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_smoothing": 0.1, "p": 1.0},
        {"scope": "batch", "p": math.inf},
        {"trim": 0.1, "weight": [0.5, *[2.0] * 18]},
    ],
)
def test_logits(dtype, options):
    assert_float64(losspool.cross_entropy, *batch(dtype=dtype), **options)
    assert_float64(losspool.upsampled_cross_entropy, *batch(dtype=dtype, coarse=(9, 10)), **options)


def test_repetition_is_exact():
    inputs = batch(size=(300, 400)), batch(size=(300, 400), coarse=(38, 50))
    for function, arguments in zip((losspool.cross_entropy, losspool.upsampled_cross_entropy), inputs, strict=True):
        first = gradient(function, *arguments, ignore_index=255)
        for _ in range(10):
            again = gradient(function, *arguments, ignore_index=255)
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_deterministic_mode_is_allowed():
    torch.use_deterministic_algorithms(True)
    try:
        gradient(losspool.upsampled_cross_entropy, *batch(coarse=(9, 10)), ignore_index=255)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_the_host_never_waits():
    (logits, labels), (coarse, fine) = batch(), batch(coarse=(9, 10))
    shares, weight = logits.detach().softmax(1), torch.rand(19, device="cuda")
    losses = torch.rand(2, 500, device="cuda", requires_grad=True)

    def step():
        gradient(losspool.cross_entropy, logits, labels, ignore_index=255)
        gradient(losspool.cross_entropy, logits, labels, weight, ignore_index=255, trim=0.1, reduction="pool")
        gradient(losspool.cross_entropy, logits, labels, ignore_index=255, stats=losspool.PoolingStats())
        gradient(losspool.cross_entropy, logits, shares, weight)
        gradient(losspool.upsampled_cross_entropy, coarse, fine, ignore_index=255, label_smoothing=0.1)
        gradient(losspool.binary_cross_entropy_with_logits, logits, shares, pos_weight=weight.view(-1, 1, 1))
        gradient(losspool.max_pool, losses)

    step()  # compiles the kernels
    try:
        torch.cuda.set_sync_debug_mode("error")
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("coarse", [None, (9, 10)])
def test_graph_capture(coarse):
    function = losspool.upsampled_cross_entropy if coarse else losspool.cross_entropy
    logits, labels = batch(coarse=coarse)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradient(function, logits, labels, ignore_index=255)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradient(function, logits, labels, ignore_index=255)
    with torch.no_grad():
        logits.mul_(0.5)
    graph.replay()
    for got, expected in zip(captured, gradient(function, logits, labels, ignore_index=255), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    network = torch.nn.Conv2d(3, 19, 3, padding=1).cuda()
    images, labels = torch.randn(2, 3, 65, 77, device="cuda"), batch()[1]
    with torch.autocast("cuda", dtype=dtype):
        logits = network(images)
        loss = losspool.cross_entropy(logits, labels, ignore_index=255)
    assert logits.dtype == dtype
    assert loss.dtype == torch.float32
    torch.amp.GradScaler("cuda").scale(loss).backward()
    assert network.weight.grad.isfinite().all()


def test_compiled():
    logits, labels = batch()
    compiled = torch.compile(losspool.cross_entropy, fullgraph=True)
    for got, wanted in zip(
        gradient(compiled, logits, labels, ignore_index=255),
        gradient(losspool.cross_entropy, logits, labels, ignore_index=255),
        strict=True,
    ):
        assert torch.equal(got, wanted)


def test_more_elements_than_an_int32_counts():
    free, _ = torch.cuda.mem_get_info()
    if free < 24 * 2**30:
        pytest.skip("needs 24 GB")
    logits = torch.zeros(1, 33, 8192, 8192, device="cuda", dtype=torch.float16, requires_grad=True)
    labels = torch.zeros(1, 8192, 8192, device="cuda", dtype=torch.uint8)
    loss, got = gradient(losspool.cross_entropy, logits, labels, p=math.inf)
    assert loss.item() == pytest.approx(math.log(33), rel=1e-6)
    assert (got[0, 0] == got[0, 0, 0, 0]).all()
    assert (got[0, 32] == got[0, 1, 0, 0]).all()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_ranks_equal_one_process():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        port = listener.getsockname()[1]
    failures = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(compare_rank, args=("nccl", port, failures), nprocs=2)
    assert failures.empty(), failures.get()

"""torch.func, torch.export, fake tensors and copies: the same values, or a sentence."""

import copy
import pickle

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, hessian, jacrev, vmap

import losspool
from losspool import BCEWithLogitsLoss, CrossEntropyLoss, LossMaxPooling, PoolingStats, UpsampledCrossEntropyLoss
from losspool.ops.pooling import _PoolInTransform


def batch(images=3, classes=4, size=(6, 5), fine=None):
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(images, classes, *size, generator=g)
    labels = torch.randint(0, classes, (images, *(fine or size)), generator=g)
    labels[0, :2] = 255
    logits[0, :, 0] = torch.nan  # void, and so without effect
    return logits, labels


LOSSES = {
    "plain": (CrossEntropyLoss(ignore_index=255), *batch()),
    "options": (CrossEntropyLoss([1.0, 2, 0, 1], ignore_index=255, label_smoothing=0.1, trim=0.2), *batch()),
    "float64": (CrossEntropyLoss(ignore_index=255, p=1, m=7), batch()[0].double(), batch()[1]),
    "probabilities": (CrossEntropyLoss(), torch.randn(3, 4, 9), torch.rand(3, 4, 9).softmax(1)),
    "upsampled": (UpsampledCrossEntropyLoss(ignore_index=255), batch()[0][..., 1:, :], batch(fine=(11, 12))[1]),
    "binary": (BCEWithLogitsLoss(pos_weight=3.0), torch.randn(3, 2, 7), torch.rand(3, 2, 7)),
    "max_pool": (LossMaxPooling(trim=0.1), torch.rand(3, 40), torch.rand(3, 40) > 0.2),
}
per_loss = pytest.mark.parametrize("name", LOSSES)


def gradient(criterion, values, target):
    values = values.clone().requires_grad_()
    return torch.autograd.grad(criterion(values, target), values)[0]


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


@per_loss
def test_gradients_per_sample_equal_a_loop(name):
    criterion, values, target = LOSSES[name]

    def one(value, label):
        return criterion(value.unsqueeze(0), label.unsqueeze(0))

    alone = [gradient(criterion, values[i : i + 1], target[i : i + 1])[0] for i in range(3)]
    close(vmap(grad(one))(values, target), torch.stack(alone))
    moved = vmap(grad(one), in_dims=(-1, 0))(values.movedim(0, -1), target)
    close(moved, torch.stack(alone))
    close(vmap(one)(values, target), torch.stack([criterion(values[i : i + 1], target[i : i + 1]) for i in range(3)]))


@per_loss
def test_a_gradient_by_transform_is_the_gradient(name):
    criterion, values, target = LOSSES[name]
    close(grad(criterion)(values, target), gradient(criterion, values, target))


WRONG = {
    "a fractional class": (CrossEntropyLoss(), torch.tensor([[0.0, 1.0, 2.5]]), torch.tensor([[0.0, 1.0, 2.0]])),
    "no class": (CrossEntropyLoss(), torch.tensor([[0.0, 1.0, torch.nan]]), torch.tensor([[0.0, 1.0, 2.0]])),
    "no 64-bit number": (CrossEntropyLoss(), torch.tensor([[0.0, 1.0, 1e30]]), torch.tensor([[0.0, 1.0, 2.0]])),
    "none, and no void": (
        CrossEntropyLoss(ignore_index=None),
        torch.tensor([[0.0, 1.0, -1e30]]),
        torch.tensor([[0.0, 1.0, 2.0]]),
    ),
    "infinity": (CrossEntropyLoss(), torch.tensor([[0.0, 1.0, torch.inf]]), torch.tensor([[0.0, 1.0, 2.0]])),
    "a fractional void": (CrossEntropyLoss(), torch.tensor([[0.0, 1.0, -100.5]]), torch.tensor([[0.0, 1.0, -100]])),
    "negative probabilities": (CrossEntropyLoss(), torch.eye(3)[None] * 2 - 0.1, torch.eye(3)[None]),
    "a mask of 255": (BCEWithLogitsLoss(), 255 * torch.eye(3)[None], torch.eye(3)[None]),
    "a NaN": (BCEWithLogitsLoss(), torch.full((1, 3, 3), torch.nan), torch.eye(3)[None]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_targets_give_nan_in_a_transform(name):
    """It has no assertions. The other samples keep their values."""
    criterion, wrong, right = WRONG[name]
    logits = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"got|holds the label -?1\.0000000150474662e\+30"):
        criterion(logits[0], wrong)
    for call in (criterion, grad(criterion)):
        found = vmap(call)(logits, torch.stack([wrong, right]))
        assert found[0].isnan().any()
        close(found[1], call(logits[1], right))


def test_the_batch_axis_may_be_any():
    """The operations before the pooling happen to move it to the front."""
    losses = torch.rand(2, 3, 40)
    expected = torch.stack([losspool.max_pool(losses[:, i], reduction="pool") for i in range(3)])
    found = vmap(lambda rows: _PoolInTransform.apply(rows, 1.3, 0.25, True)[0], in_dims=1)(losses)
    close(found.float(), expected)


@pytest.mark.parametrize("name", ["probabilities", "binary"])
def test_compiled_losses_are_the_same(name):
    criterion, values, target = LOSSES[name]
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    close(gradient(compiled, values, target), gradient(criterion, values, target))


def test_every_pool_has_a_gradient_of_its_own():
    logits, labels = batch()
    criterion = CrossEntropyLoss(ignore_index=255, reduction="pool")
    rows = jacrev(criterion)(logits, labels)  # (pools, B, C, H, W)
    mean = gradient(CrossEntropyLoss(ignore_index=255), logits, labels)
    for pool in range(3):
        close(rows[pool, pool], 3 * mean[pool])
        assert (rows[pool, [i for i in range(3) if i != pool]] == 0).all()


@per_loss
def test_fake_tensors_have_the_shapes_of_real_ones(name):
    criterion, values, target = LOSSES[name]
    with FakeTensorMode() as mode:
        fake, label = mode.from_tensor(values).requires_grad_(), mode.from_tensor(target)
        stats = PoolingStats()
        loss = copy.copy(criterion)
        loss._buffers = {
            key: value if value is None else mode.from_tensor(value) for key, value in loss._buffers.items()
        }
        value = loss(fake, label, stats=stats)
        value.backward()
    real = PoolingStats()
    expected = criterion(values, target, stats=real)
    assert (value.shape, value.dtype) == (expected.shape, expected.dtype)
    assert (fake.grad.shape, fake.grad.dtype) == (values.shape, values.dtype)
    assert stats.weights.shape == real.weights.shape
    assert stats.trimmed.shape == real.trimmed.shape


@pytest.mark.parametrize("name", ["plain", "probabilities", "upsampled", "binary", "max_pool"])
def test_fake_tensors_need_no_active_mode(name):
    _, values, target = LOSSES[name]
    criterion = BCEWithLogitsLoss() if name == "binary" else LOSSES[name][0]
    mode = FakeTensorMode()
    assert criterion(mode.from_tensor(values), mode.from_tensor(target)).shape == ()


class Network(torch.nn.Module):
    def __init__(self, criterion, channels):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.criterion = torch.nn.Conv1d(channels, channels, 1), criterion

    def forward(self, values, target):
        return self.criterion(self.layer(values.nan_to_num()), target)


@pytest.mark.parametrize("name", ["options", "probabilities", "binary"])
def test_an_exported_network_trains(name):
    criterion, values, target = LOSSES[name]
    values, target = values.flatten(2), target.flatten(1) if name == "options" else target
    network, twin = Network(criterion, values.shape[1]), Network(criterion, values.shape[1])
    exported = torch.export.export(twin, (values, target)).module()
    expected, got = network(values, target), exported(values, target)
    expected.backward()
    got.backward()
    assert got.item() == pytest.approx(expected.item(), rel=1e-6)
    close(dict(exported.named_parameters())["layer.weight"].grad, network.layer.weight.grad)


@pytest.mark.parametrize("dims", [({2: "H", 3: "W"}, {1: "H", 2: "W"}), ({0: "B", 2: "H"}, {0: "B", 1: "H"})])
def test_an_exported_loss_takes_images_of_any_size(dims):
    sizes = {name: torch.export.Dim(name, min=2, max=64) for each in dims for name in each.values()}
    shapes = tuple({axis: sizes[name] for axis, name in each.items()} for each in dims)
    layer = torch.nn.Module()
    layer.forward = CrossEntropyLoss(ignore_index=255).forward
    exported = torch.export.export(layer, batch(), dynamic_shapes=shapes).module()
    other = batch(size=(9, 5) if "W" not in sizes else (9, 8))
    assert exported(*other).item() == pytest.approx(CrossEntropyLoss(ignore_index=255)(*other).item(), rel=1e-6)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("height", "others"), [(4, [7, 2]), (5, [4])])
def test_exported_class_probabilities_take_any_height(height, others, strict):
    """Also one that equals the number of classes, in the example or later."""
    criterion, size = CrossEntropyLoss(), torch.export.Dim("H", min=2, max=64)
    holder = torch.nn.Sequential(criterion)
    holder.forward = lambda logits, target: criterion(logits, target)

    def example(high):
        g = torch.Generator().manual_seed(high)
        return torch.randn(2, 4, high, 3, generator=g), torch.rand(2, 4, high, 3, generator=g).softmax(1)

    exported = torch.export.export(holder, example(height), dynamic_shapes=({2: size}, {2: size}), strict=strict)
    for high in others:
        expected = criterion(*example(high)).item()
        assert exported.module()(*example(high)).item() == pytest.approx(expected, rel=1e-6)
    logits, _ = example(height)
    with pytest.raises((AssertionError, RuntimeError, ValueError)):  # labels are another program
        exported.module()(logits, torch.zeros(2, height, 3))


def scripted(values: torch.Tensor, target: torch.Tensor):
    return losspool.cross_entropy(values, target)


@pytest.mark.parametrize(
    "what",
    [
        CrossEntropyLoss(),
        LossMaxPooling(),
        torch.nn.Sequential(torch.nn.Identity(), LossMaxPooling()),
        *(getattr(losspool, name) for name in losspool.__all__ if name.islower()),
        scripted,
    ],
)
def test_torchscript_is_refused_in_one_sentence(what):
    with pytest.raises(
        TypeError, match=r"^torch\.jit\.script cannot compile losspool; script the network alone and [^\n]*$"
    ):
        torch.jit.script(what)


def test_what_cannot_be_had_says_so():
    logits, labels = batch()
    criterion = CrossEntropyLoss(ignore_index=255)

    def one(value, label, **options):
        return losspool.cross_entropy(value.unsqueeze(0), label.unsqueeze(0), ignore_index=255, **options)

    with pytest.raises(RuntimeError, match="losspool has no second derivative"):
        jacrev(grad(criterion))(logits, labels)
    with pytest.raises(RuntimeError, match=r"no forward-mode derivatives, as in jvp, jacfwd and hessian; use"):
        hessian(criterion)(logits, labels)
    with pytest.raises(ValueError, match="stats cannot leave a transform"):
        vmap(lambda value, label: one(value, label, stats=PoolingStats()))(logits, labels)
    negative = vmap(lambda losses: losspool.max_pool(losses.unsqueeze(0)))(torch.tensor([[1.0, -1.0], [1.0, 1.0]]))
    assert negative.isnan().tolist() == [True, False], "nobody looks at losses in a transform"


def test_a_negative_weight_gives_nan_in_a_transform():
    logits, target = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)), torch.eye(3, 4).expand(2, 3, 4)
    factors = torch.tensor([[[-0.01], [1.0], [1.0]], [[1.0], [1.0], [1.0]]])
    for name in ("weight", "pos_weight"):
        found = vmap(
            lambda value, label, factor, name=name: losspool.binary_cross_entropy_with_logits(
                value.unsqueeze(0), label.unsqueeze(0), **{name: factor}
            )
        )(logits, target, factors)
        assert found.isnan().tolist() == [True, False], name
    shares = target.transpose(1, 2).softmax(2).transpose(1, 2)
    found = vmap(lambda value, share, weight: losspool.cross_entropy(value[None], share[None], weight))(
        logits, shares, factors[..., 0]
    )
    assert found.isnan().tolist() == [True, False]


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting-point'}", rank=0, world_size=1)
    yield dist.new_group([0])
    dist.destroy_process_group()


def test_a_global_pool_cannot_be_transformed(group):
    logits, labels = batch()
    criterion = CrossEntropyLoss(ignore_index=255, scope="global")
    with pytest.raises(ValueError, match=r'scope="global" exchanges .* torch.func, .* use scope="batch"'):
        grad(criterion)(logits, labels)
    mode = FakeTensorMode()
    with pytest.raises(ValueError, match=r'scope="global" exchanges .* fake tensors cannot follow'):
        criterion(mode.from_tensor(logits), mode.from_tensor(labels))


def test_copies_of_a_module_with_a_group(group):
    logits, labels = batch()
    criterion = CrossEntropyLoss([1.0, 2, 0, 1], ignore_index=255, scope="global", group=group)
    expected = criterion(logits, labels)
    copied = copy.deepcopy(criterion)
    assert copied.group is group
    assert copied.weight is not criterion.weight
    assert torch.equal(copied(logits, labels), expected)
    assert copy.copy(criterion).group is group
    assert copy.copy(criterion).weight is criterion.weight
    restored = pickle.loads(pickle.dumps(criterion))
    with pytest.raises(ValueError, match=r"pickled, without its process group of the ranks 0; set its \.group"):
        restored(logits, labels)
    restored.group = group
    assert torch.equal(restored(logits, labels), expected)
    default = pickle.loads(pickle.dumps(CrossEntropyLoss(ignore_index=255, scope="global", group=dist.group.WORLD)))
    assert default.group is None, "every process has the default group"
    assert torch.equal(pickle.loads(pickle.dumps(restored)).weight, criterion.weight)

"""What the monitors record of a call, whatever kind of call it is. Needs no framework."""

import pytest
import torch

import losspool
from losspool.integrations.recording import Recorder, find_criterion, write_maps
from losspool.stats import class_mass


def record(criterion, *args, maps=2, classes=None, **kwargs):
    recorder = Recorder(1, classes, maps)
    recorder.attach(criterion)
    recorder.begin(0)
    criterion(*args, **kwargs)
    found = recorder.end()
    recorder.detach()
    return found


@pytest.fixture
def logits():
    return torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(0))


def test_mass_of_classes_is_a_sum_over_their_pixels(logits):
    weights, labels = logits[:, 0].abs(), logits.argmax(1)
    labels[0, 0] = 255
    labels[1, 0] = -100
    expected = [weights[labels == each].sum().item() for each in range(3)]
    assert class_mass(weights, labels, 3).tolist() == pytest.approx(expected)
    assert class_mass(weights, labels.unsqueeze(1).float(), 3).tolist() == pytest.approx(expected)
    one_hot = torch.nn.functional.one_hot(labels.clamp(0, 2), 3).movedim(-1, 1) * (
        labels == labels.clamp(0, 2)
    ).unsqueeze(1)
    assert class_mass(weights, one_hot.float(), 3).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("scope", ["image", "batch", "global"])
def test_a_void_class_has_neither_weight_nor_pixels(logits, scope):
    labels = logits.argmax(1)
    found = record(losspool.CrossEntropyLoss(ignore_index=1, scope=scope, p=float("inf")), logits, labels)
    kept = (labels != 1).sum()
    for name, count in {"0": (labels == 0).sum(), "1": 0, "2": (labels == 2).sum()}.items():
        assert found.scalars[f"pooling/pixels/{name}"] == pytest.approx(float(count / kept))
    assert found.scalars["pooling/mass/1"] == 0
    assert found.scalars["pooling/saturated"] == 1  # every pixel of a plain mean has the same weight


def test_maps_are_white_where_saturated(logits):
    stats = losspool.PoolingStats()
    found = record(losspool.CrossEntropyLoss(), logits * 5, torch.zeros(2, 5, 6).long(), stats=stats)
    for index, image in enumerate(found.maps):
        assert (image == 255).sum() >= stats.saturated[index] > 0
        expected = stats.weights[index] / stats.tau[index] * 255
        assert (image - expected).abs().max() <= 0.51
    assert found.scalars["pooling/alpha"] == pytest.approx(stats.alpha.mean().item())


@pytest.mark.parametrize(
    ("criterion", "args", "shapes"),
    [
        (losspool.LossMaxPooling(), [torch.rand(2, 5, 6)], [(5, 6)] * 2),
        (losspool.BCEWithLogitsLoss(), [torch.zeros(2, 3, 5, 6), torch.ones(2, 3, 5, 6)], [(5, 6)] * 2),
        (losspool.CrossEntropyLoss(), [torch.rand(2, 3, 4, 5, 6), torch.zeros(2, 4, 5, 6)], [(5, 6)] * 2),
        (losspool.CrossEntropyLoss(), [torch.rand(1, 3, 5, 6), torch.full((1, 3, 5, 6), 1 / 3)], [(5, 6)]),
        (losspool.UpsampledCrossEntropyLoss(), [torch.rand(1, 3, 5, 6), torch.zeros(1, 10, 12)], [(10, 12)]),
        (losspool.CrossEntropyLoss(scope="batch"), [torch.rand(8, 3), torch.zeros(8)], []),
        (losspool.CrossEntropyLoss(), [torch.rand(2, 300, 9), torch.zeros(2, 9)], []),  # tokens
    ],
)
def test_every_kind_of_call(criterion, args, shapes):
    found = record(criterion, *args)
    assert [tuple(image.shape) for image in found.maps] == shapes
    mass = [value for name, value in found.scalars.items() if "/mass/" in name]
    by_class = isinstance(criterion, losspool.CrossEntropyLoss) and args[0].shape[1] < 300
    assert sum(mass) == pytest.approx(1 if by_class else 0)
    assert 0 <= found.scalars["pooling/saturated"] <= 1


def test_a_batch_of_void_pixels(logits):
    found = record(losspool.CrossEntropyLoss(), logits, torch.full((2, 5, 6), -100))
    assert set(found.scalars.values()) == {0.0}
    assert not any(image.any() for image in found.maps)


def test_an_unsigned_label_is_counted_although_it_wraps_around():
    """As uint8, 156 equals the default ignore_index of -100."""
    labels = torch.tensor([[[156, 3]]], dtype=torch.uint8)
    found = record(losspool.CrossEntropyLoss(), torch.rand(1, 200, 1, 2), labels, classes=list(map(str, range(200))))
    assert found.scalars["pooling/pixels/156"] == pytest.approx(0.5)


def test_the_first_call_of_wanted_steps_is_recorded(logits):
    criterion, recorder = losspool.CrossEntropyLoss(), Recorder(2, None, 0)
    recorder.attach(criterion)
    labels, seen = torch.zeros(2, 5, 6).long(), []
    for step in (0, 0, 1, 2, 4):  # the first of two micro-batches
        recorder.begin(step)
        criterion(logits * (step + 1), labels)
        criterion(logits * 0, labels)  # another head
        seen.append(recorder.end())
        criterion(logits, labels)  # validation
    assert [each and each.step for each in seen] == [0, None, None, 2, 4]
    alone = record(criterion, logits * 3, labels).scalars
    assert seen[3].scalars == alone


def test_a_call_that_raises_leaves_nothing_behind(logits):
    criterion, recorder, labels = losspool.CrossEntropyLoss(), Recorder(1, None, 0), torch.zeros(2, 5, 6).long()
    recorder.attach(criterion)
    recorder.begin(0)
    with pytest.raises(ValueError, match="label 3"):
        criterion(logits, labels + 3)
    recorder.detach()
    assert not criterion._forward_pre_hooks
    assert not criterion._forward_hooks
    criterion(logits, labels)
    assert recorder.end() is None
    recorder.attach(criterion)
    criterion(logits, labels)  # before the first step of the next training
    assert recorder.end() is None
    recorder.begin(0)
    criterion(logits * 2, labels)
    assert recorder.end() == record(criterion, logits * 2, labels, maps=0)


def test_a_record_is_not_left_to_the_next_training(logits):
    criterion, recorder = losspool.CrossEntropyLoss(), Recorder(1, None, 0)
    recorder.attach(criterion)
    recorder.begin(0)
    criterion(logits, torch.zeros(2, 5, 6).long())  # the backward pass fails
    recorder.attach(criterion)
    assert recorder.end() is None


@pytest.mark.parametrize(("every", "maps", "named"), [(0, 2, "every .* 0"), (True, 2, "every"), (1, -1, "maps .* -1")])
def test_bad_settings_are_named(every, maps, named):
    with pytest.raises(ValueError, match=named):
        Recorder(every, None, maps)


def test_the_module_to_watch_is_found_inside_of_others():
    criterion = losspool.CrossEntropyLoss()
    holder = torch.nn.ModuleDict({"dice": torch.nn.Identity(), "terms": torch.nn.ModuleList([criterion])})
    assert find_criterion(holder.modules(), "it") is criterion


def test_a_tracker_without_pictures_gets_none():
    write_maps(object(), [torch.zeros(2, 2, dtype=torch.uint8)], 0)

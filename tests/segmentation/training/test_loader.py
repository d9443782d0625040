"""The stream of crops is the same for every number of workers, after a resume and over ranks, with the IoU fed back."""

import io

import numpy as np
import pytest
import torch

from losspool.segmentation.base.errors import BrokenFileError, UserError
from losspool.segmentation.config.schema import SamplingConfig
from losspool.segmentation.data.crops.augment import Augmentation
from losspool.segmentation.data.crops.indexing import build_index
from losspool.segmentation.data.kinds.registry import open_dataset
from losspool.segmentation.prediction.metrics import confusion
from losspool.segmentation.training.loader import CropDataset, crop_loader
from losspool.segmentation.training.sampling import CropSampler, Draw, DrawStream, RunningIoU
from small_data import write_folder

STEPS, BATCH, LAG = 40, 4, 9
AUGMENTATION = Augmentation((24, 24))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    dataset = open_dataset("folder", write_folder(tmp_path_factory.mktemp("loader")), "train")
    return dataset, build_index(dataset)


def predicted(batch, step):
    """A network that learns class 1 late: until then it calls it 0. So the feedback changes as the steps go by."""
    labels = batch.labels.clone()
    if step < 15:
        labels[labels == 1] = 0
    labels[labels == 255] = 0
    return labels


class Training:
    """The part of a training loop that the stream depends on, in ranks that take turns in one process."""

    def __init__(self, data, ranks=1, workers=0, accumulate=1, feedback=True):
        dataset, index = data
        settings = SamplingConfig(mix=0.7, lag=LAG, decay=0.5)
        self.samplers = [CropSampler(index, settings, seed=3) for _ in range(ranks)]
        self._dataset, self._workers, self._accumulate, self._feedback = dataset, workers, accumulate, feedback

    def run(self, first, last):
        """What each step saw: (draws, images, labels), in the order of one process."""
        ranks, seen = len(self.samplers), []
        loaders = [
            iter(
                crop_loader(
                    self._dataset,
                    AUGMENTATION,
                    DrawStream(
                        sampler,
                        batch=BATCH // ranks // self._accumulate,
                        accumulate=self._accumulate,
                        rank=rank,
                        ranks=ranks,
                        first=first,
                        last=STEPS,
                    ),
                    workers=self._workers,
                    lag=LAG,
                )
            )
            for rank, sampler in enumerate(self.samplers)
        ]
        for step in range(first, last):
            parts = [[next(loader) for _ in range(self._accumulate)] for loader in loaders]
            counts = sum(confusion(predicted(batch, step), batch.labels, 3) for batches in parts for batch in batches)
            for sampler in self.samplers:
                sampler.running.observe(counts if self._feedback else torch.zeros_like(counts))
            flat = [
                [item for batch in batches for item in zip(batch.draws, batch.images, batch.labels, strict=True)]
                for batches in parts
            ]
            seen.append([flat[number % ranks][number // ranks] for number in range(BATCH)])
        return seen


@pytest.fixture(scope="module")
def undisturbed(data):
    return Training(data).run(0, STEPS)


def draws_of(stream):
    return [[draw for draw, _, _ in step] for step in stream]


def assert_same(stream, truth):
    assert draws_of(stream) == draws_of(truth)
    for step, true_step in zip(stream, truth, strict=True):
        for (_, image, label), (_, true_image, true_label) in zip(step, true_step, strict=True):
            assert torch.equal(image, true_image)
            assert torch.equal(label, true_label)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
@pytest.mark.parametrize("workers", [1, 2, 4])  # four prefetch eight batches, one below the lag
def test_workers_change_nothing(data, undisturbed, workers):
    assert_same(Training(data, workers=workers).run(0, STEPS), undisturbed)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [5, 17, 30])
def test_a_stop_amid_the_prefetch_and_a_resume_change_nothing(data, undisturbed, workers, stop):
    """The state goes through a file that holds no code, into a new sampler."""
    before = Training(data, workers=workers)
    seen = before.run(0, stop)
    file = io.BytesIO()
    torch.save(before.samplers[0].running.state_dict(), file)
    file.seek(0)
    after = Training(data, workers=workers)
    after.samplers[0].running.load_state_dict(torch.load(file, weights_only=True))
    assert_same(seen + after.run(stop, STEPS), undisturbed)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_draw_what_one_process_draws(data, undisturbed, ranks):
    assert_same(Training(data, ranks=ranks).run(0, STEPS), undisturbed)


def test_accumulation_draws_what_one_large_batch_draws(data, undisturbed):
    assert_same(Training(data, accumulate=2).run(0, STEPS), undisturbed)


def test_the_feedback_is_seen(data, undisturbed):
    """With the feedback frozen the stream differs, from the first step on that could know of it."""
    frozen = draws_of(Training(data, feedback=False).run(0, STEPS))
    differs = [a != b for a, b in zip(frozen, draws_of(undisturbed), strict=True)]
    assert not any(differs[: LAG + 1])
    assert sum(differs[LAG + 1 :]) > 10


def test_a_resume_without_the_lags_buffer_would_differ(data, undisturbed, monkeypatch):
    """The history is not ballast: a state that holds the present IoU alone gives other crops."""
    before = Training(data)
    seen = before.run(0, 17)
    state = before.samplers[0].running.state_dict()
    state["history"] = state["history"][-1:].expand(len(state["history"]), -1).clone()
    after = Training(data)
    after.samplers[0].running.load_state_dict(state)
    assert draws_of(seen + after.run(17, STEPS)) != draws_of(undisturbed)


def test_a_saved_state_is_not_changed_by_going_on():
    running = RunningIoU(2, decay=0.5, lag=3)
    running.observe(torch.eye(2, dtype=torch.int64))
    state = running.state_dict()
    copies = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
    running.observe(torch.ones(2, 2, dtype=torch.int64))
    running.after(2)
    for key, value in copies.items():
        assert torch.equal(value, state[key]) if isinstance(value, torch.Tensor) else value == state[key]


def test_batches_hold_what_the_network_gets(data):
    (step,) = Training(data).run(0, 1)
    for draw, image, label in step:
        assert image.shape == (24, 24, 3)
        assert image.dtype == label.dtype == torch.uint8
        if draw.aim:
            assert (label == draw.label).any()
        assert set(np.unique(label)) <= {0, 1, 2, 255}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_one_sentence_from_every_process(tmp_path, workers):
    """torch's own way would send a worker's traceback."""
    root = write_folder(tmp_path)
    dataset = open_dataset("folder", root, "train")
    index = build_index(dataset)
    for path in (root / "images/train").iterdir():
        path.write_bytes(path.read_bytes()[:200])
    sampler = CropSampler(index, SamplingConfig(lag=9), 0)
    stream = DrawStream(sampler, batch=2, accumulate=1, rank=0, ranks=1, first=0, last=3)
    batches = crop_loader(dataset, AUGMENTATION, stream, workers=workers, lag=LAG)
    with pytest.raises(BrokenFileError) as caught:
        next(iter(batches))
    assert str(root / "images" / "train") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_draws_seed_decides_the_crop(data):
    crops = CropDataset(data[0], AUGMENTATION)
    first, again, other = (crops[Draw(0, seed)] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])


def test_too_small_a_lag_is_refused(data):
    dataset, index = data
    stream = DrawStream(
        CropSampler(index, SamplingConfig(lag=4), 0), batch=1, accumulate=1, rank=0, ranks=1, first=0, last=1
    )
    with pytest.raises(UserError, match=r"sampling\.lag = 4 must exceed data\.workers × 2 = 4"):
        crop_loader(dataset, AUGMENTATION, stream, workers=2, lag=4)

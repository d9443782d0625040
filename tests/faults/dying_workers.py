"""Loaders whose worker dies at the worst moment, in a process of their own: it would hang for ever.

``python -m faults.dying_workers FOLDER`` prints the name of each death that its loader has noticed.
"""

import os
import pickle
import signal
import struct
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch
from torch.utils.data._utils import worker as torch_worker

from losspool.segmentation.base import UserError, hard_exit
from losspool.segmentation.config.schema import SamplingConfig
from losspool.segmentation.data.crops.augment import Augmentation
from losspool.segmentation.data.crops.indexing import build_index
from losspool.segmentation.data.kinds.folder import open_folder
from losspool.segmentation.training.loader import crop_loader
from losspool.segmentation.training.sampling import CropSampler, DrawStream
from small_data import write_folder

TIMEOUT = 2
"""data.timeout of these loaders, in seconds."""
ENDLESS = 1_000_000


def crops(folder, seed=0, last=ENDLESS, **options):
    """A loader with two workers that has given its first batch, and its sampler."""
    dataset = open_folder(write_folder(folder), "train")
    sampler = CropSampler(build_index(dataset), SamplingConfig(lag=9), seed)
    stream = DrawStream(sampler, batch=2, accumulate=1, rank=0, ranks=1, first=0, last=last)
    batches = crop_loader(dataset, Augmentation((24, 24)), stream, workers=2, lag=9, timeout=TIMEOUT, **options)
    next(batches)
    return batches, sampler


def exhaust(batches, sampler):
    for _ in batches:
        sampler.running.observe(torch.zeros(3, 3))


def die_with_a_lock(folder, patch):
    """A worker asks whether it is done, and dies before it has let go of the lock that the answer needs."""
    real, trainer, asked = Event.is_set, os.getpid(), []

    def is_set(self):
        asked.append(self)
        if os.getpid() == trainer or len(asked) < 3:
            return real(self)
        with self._cond:
            os.kill(os.getpid(), signal.SIGKILL)

    patch(Event, "is_set", is_set)
    batches, sampler = crops(folder)
    with pytest.raises(UserError, match="was killed by SIGKILL"):
        exhaust(batches, sampler)


def die_in_a_message(folder, patch, last=b"\0\0\1\0the beginning of 256 bytes"):
    """The thread that pins memory awaits the rest of it."""
    pin_without_a_device(patch)
    loop = torch_worker._worker_loop

    def torn(*arguments):
        if arguments[10] == 1:  # the second worker
            time.sleep(0.5)
            arguments[3]._writer._send(last)
            os.kill(os.getpid(), signal.SIGKILL)
        loop(*arguments)

    patch(torch_worker, "_worker_loop", torn)
    batches, sampler = crops(folder, pin=True)
    with pytest.raises(UserError, match="was killed by SIGKILL"):
        exhaust(batches, sampler)


class Refused:
    """Like memory that is fetched from a process that has died."""

    def __reduce__(self):
        return os.stat, ("/nowhere/at/all",)


def die_after_a_message(folder, patch):
    """The thread that pins memory finds nobody to fetch the batch from, and ends with an exception."""
    content = pickle.dumps(Refused())
    die_in_a_message(folder, patch, struct.pack("!i", len(content)) + content)


def pin_without_a_device(patch):
    """What torch asks of an accelerator before it starts the thread that pins memory."""
    for name, found in {"is_available": True, "current_device_index": 0, "set_device_index": None}.items():
        patch(torch.accelerator, name, lambda *_, found=found: found)
    patch(torch.accelerator, "current_accelerator", lambda *_: torch.device("cpu"))
    patch(torch.Tensor, "pin_memory", lambda self, *_: self)


if __name__ == "__main__":
    with hard_exit():  # as in the command: the thread that pins memory may outlive its loader
        for death in (die_with_a_lock, die_in_a_message, die_after_a_message):
            with pytest.MonkeyPatch.context() as patch:
                death(Path(sys.argv[1]) / death.__name__, patch.setattr)
            print(death.__name__, flush=True)

"""Times one training step (forward, loss and backward) of networks, interleaved: ``python benchmarks/networks.py``."""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import losspool
from losspool.segmentation.models import Model, build_model

NETWORKS = {
    "deeplabv2_mobilenetv2": 16,
    "deeplabv2_mobilenetv2 (stride 8)": 8,
    "deeplabv3plus_mobilenetv2": 16,
    "fpn_mobilenetv2": 32,
}
"""Names and output strides."""


def step_seconds(model: Model, images: torch.Tensor, labels: torch.Tensor) -> float:
    began = time.perf_counter()
    model.module.zero_grad(set_to_none=True)
    losspool.upsampled_cross_entropy(model.module(images), labels).backward()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=320)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    models = {name: build_model(name.split()[0], 11, output_stride=stride) for name, stride in NETWORKS.items()}
    images = torch.randn(options.batch, 3, options.size, options.size)
    labels = torch.randint(11, (options.batch, options.size, options.size))
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(options.rounds + 1):
        for name, model in models.items():
            took = step_seconds(model, images, labels)
            if number:  # the first round warms up
                seconds[name].append(took)
    for name, model in models.items():
        parameters = sum(parameter.numel() for parameter in model.module.parameters())
        low, high = min(seconds[name]), max(seconds[name])
        median = statistics.median(seconds[name])
        print(f"{name}: {median:.2f} s ({low:.2f} to {high:.2f}), {parameters:,} parameters")


if __name__ == "__main__":
    main()

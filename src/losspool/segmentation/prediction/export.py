"""Exports a trained network to one file that runs without this package, and checks it against the network."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from losspool.segmentation.base import UserError, first_line, plain, replacing
from losspool.segmentation.models import Model, enlarge
from losspool.segmentation.prediction.trained_run import Trained, TrainedRun

SUFFIXES = (".onnx", ".pt2")
INPUT, OUTPUT = "images", "logits"
RESIZE = "Pillow's BILINEAR: bilinear, over a wider area when it shrinks"
"""The filter that training and prediction zoom images with."""
TOLERANCE, RELATIVE = 1e-3, 1e-4
"""Tolerance for logits: absolute, or relative to the largest. float32 rounding alone causes about 1e-5 relative."""
_NEEDED = ("onnx", "onnxscript", "onnxruntime")
_EXAMPLE = (2, 129, 193)
"""Batch, height and width to trace with. None is 1 and all differ, so the tracer takes none of them for a constant."""
_OTHER = (1, 98, 145)
"""A second shape to check if the size is dynamic."""

Runner = Callable[[Tensor], Tensor]


class Exported(nn.Module):
    """Maps uint8 RGB images (B, H, W, 3) to logits (B, C, H, W). Includes preprocessing and upsampling."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network = model.module
        self._preprocessing = model.spec.preprocessing
        self._stride = model.spec.logit_stride

    def forward(self, images: Tensor) -> Tensor:
        batch, height, width, channels = images.shape
        # As one long row, so that a height of 3 cannot be mistaken for the channels.
        row = images.reshape(batch, 1, height * width, channels)
        ready = self._preprocessing.apply(row).view(batch, channels, height, width)
        return enlarge(cast(Tensor, self.network(ready)).float(), (height, width), self._stride)


def parse_size(text: str) -> tuple[int, int]:
    """Parse height and width.

    >>> parse_size("512,1024")
    (512, 1024)
    """
    try:
        height, width = (int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"a size is a height and a width such as 512,1024, got {text!r}") from None
    if height < 1 or width < 1:
        raise UserError(f"height and width must be at least 1, got {text!r}")
    return height, width


def export_run(trained: Trained, path: Path, size: tuple[int, int] | None = None) -> float:
    """Write ``path`` (.onnx or .pt2) and return the largest difference between its logits and the network's.

    Without ``size`` the file accepts batches of any size and images of any height and width. With it, the file accepts
    one image of that height and width. If its logits differ from the network's, the file is not written.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: an exported model ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.suffix == ".onnx":
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise UserError(f"exporting to ONNX needs {', '.join(missing)}: pip install 'losspool[export]'")
    network = Exported(trained.model).eval()
    shapes = [_EXAMPLE, _OTHER] if size is None else [(1, *size)]
    write, load = (_write_onnx, _load_onnx) if path.suffix == ".onnx" else (_write_program, _load_program)
    with replacing(path) as partial, torch.no_grad(), _quiet():
        try:
            content = write(network, _images(shapes[0]), size is None, _description(trained))
        except Exception as error:  # tracing the model's code may raise anything
            problem = first_line(error)
            raise UserError(f"{trained.model.spec.name}: the model cannot be exported ({problem})") from error
        partial.write_bytes(content)
        return _check(load(partial.read_bytes()), network, shapes, path)


def report_export(run: Path, checkpoint: str, path: Path, size: str | None, trusted: Collection[str]) -> None:
    """``losspool export``: write ``path``, and print what it holds and how exact it is."""
    trained = TrainedRun.open(run, trusted).load_one(checkpoint)
    difference = export_run(trained, path, None if size is None else parse_size(size))
    batch, height, width = ("B", "H", "W") if size is None else (1, *parse_size(size))
    logits = f"({batch}, {len(trained.classes)}, {height}, {width})"
    print(plain(f"{path}: uint8 images ({batch}, {height}, {width}, 3) to logits {logits}"))
    print(f"Largest difference from the network: {difference:.3g}")
    if trained.config.data.exif == "apply":
        print("The images were turned by their EXIF orientation: turn yours too.")
    if trained.config.data.zoom != 1:
        zoom = f"{trained.config.data.zoom:g} times their size"
        print(f"The network was trained on images at {zoom}: resize yours too, with {RESIZE}.")
    if isinstance(trained.config.data.intensity, tuple):
        low, high = trained.config.data.intensity
        scaled = f"(value - {low:g}) * 255 / {high - low:g}, cut to 0 … 255"
        print(f"Its images have more than 8 bits, of which {low:g} to {high:g} were read as black to white: {scaled}.")


def _check(run: Runner, network: Exported, shapes: list[tuple[int, int, int]], path: Path) -> float:
    """Largest difference over random images. The arg-max agrees wherever its margin exceeds twice this difference."""
    largest = 0.0
    for shape in shapes:
        images = _images(shape)
        wanted = network(images)
        found = run(images)
        tolerance = max(TOLERANCE, RELATIVE * wanted.abs().max().item())
        difference = (found - wanted).abs().max().item() if found.shape == wanted.shape else float("nan")
        if not difference <= tolerance:  # also true for NaN
            raise UserError(
                f"{path}: not written, because its logits for images of {shape[1]}×{shape[2]} differ from the "
                f"network's by {difference:.3g}, more than {tolerance:.3g}"
            )
        largest = max(largest, difference)
    return largest


def _write_onnx(network: Exported, example: Tensor, free: bool, description: str) -> bytes:
    axes = {0: "batch", 1: "height", 2: "width"}
    program = torch.onnx.export(
        network,
        (example,),
        dynamo=True,
        input_names=[INPUT],
        output_names=[OUTPUT],
        dynamic_shapes={INPUT: axes} if free else None,
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props["losspool"] = description
    return bytes(program.model_proto.SerializeToString())


def _load_onnx(content: bytes) -> Runner:
    onnxruntime = import_module("onnxruntime")  # an optional dependency
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run([OUTPUT], {INPUT: images.numpy()})[0])


def _write_program(network: Exported, example: Tensor, free: bool, description: str) -> bytes:
    any_size = torch.export.Dim.DYNAMIC
    axes = {INPUT: dict.fromkeys(range(3), any_size)} if free else None
    buffer = io.BytesIO()
    torch.export.save(
        torch.export.export(network, (example,), dynamic_shapes=axes),
        buffer,
        extra_files={"losspool.json": description},
    )
    return buffer.getvalue()


def _load_program(content: bytes) -> Runner:
    return cast(Runner, torch.export.load(io.BytesIO(content)).module())


def _description(trained: Trained) -> str:
    """JSON metadata stored in the file: input and how to prepare it, output, classes, model and step."""
    facts: dict[str, Any] = {
        "input": "uint8 RGB (B, H, W, 3)",
        "output": "float32 logits (B, C, H, W)",
        "classes": [info.to_dict() for info in trained.classes],
        "zoom": trained.config.data.zoom,
        "resize": RESIZE,
        "exif": trained.config.data.exif,
        "intensity": trained.config.data.intensity,
        "model": trained.model.spec.name,
        "step": trained.step,
    }
    return json.dumps(facts, ensure_ascii=False)


def _images(shape: tuple[int, int, int]) -> Tensor:
    random = np.random.default_rng(sum(shape))
    return torch.from_numpy(random.integers(0, 256, (*shape, 3), dtype=np.uint8))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporters, which report missing packages, their own deprecations and failed graphs."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

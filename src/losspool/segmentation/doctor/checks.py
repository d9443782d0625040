"""Examines versions, devices, GPU kernels, the cache folder and ImageNet weights, without changing any of them."""

from __future__ import annotations

import os
import platform
import re
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

import losspool
from losspool import kernels

EXTRAS = ("train", "export", "voc", "lab", "ray", "slurm")
"""The extras of pyproject.toml, without those for work on losspool itself."""


def examine() -> Iterator[tuple[str, str]]:
    """What was examined, and what was found: a line each."""
    yield "losspool", f"{losspool.__version__}, {_commit()}"
    yield "Python", f"{platform.python_version()} on {platform.platform()}"
    yield (
        "torch",
        f"{torch.__version__}, {_build()}, {_triton()}, {torch.get_num_threads()} threads of {os.cpu_count()} cores",
    )
    yield from _extras()
    yield from _devices()
    yield from _folders()


def _commit() -> str:
    try:
        from losspool.segmentation.runs import source_commit
    except ImportError:
        return "commit unknown without losspool[train]"
    commit = source_commit()
    return f"commit {commit}" if commit else "commit unknown"


def _build() -> str:
    if torch.version.hip:
        return f"built for ROCm {torch.version.hip}"
    return f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA or ROCm"


def _triton() -> str:
    version = _version("triton") or _version("pytorch-triton-rocm")
    return f"Triton {version}" if version else "no Triton"


def _extras() -> Iterator[tuple[str, str]]:
    """The packages of each extra, as the installed losspool lists them."""
    try:
        requirements = metadata.requires("losspool") or []
    except metadata.PackageNotFoundError:
        yield "packages", "unknown: losspool is not installed, only on Python's path"
        return
    for extra in EXTRAS:
        wanted = [text for text in requirements if re.search(rf"extra == ['\"]{extra}['\"]", text)]
        names = [re.match(r"[\w.-]+", text)[0] for text in wanted]  # type: ignore[index]  # a requirement has a name
        versions = {name: _version(name) for name in names if name != "losspool"}
        missing = [name for name, version in versions.items() if version is None]
        found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        yield f"losspool[{extra}]", f"incomplete, without {', '.join(missing)}" if missing else found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> Iterator[tuple[str, str]]:
    """Each GPU, and whether the kernels compute the loss there."""
    gpus = torch.cuda.device_count()
    for place in range(gpus):
        about = torch.cuda.get_device_properties(place)
        memory = f"{about.total_memory / 2**30:.1f} GiB"
        reason = kernels.unusable(torch.device("cuda", place))
        used = "GPU kernels are used" if reason is None else f"GPU kernels are not used: {reason}"
        yield f"GPU {place}", f"{about.name}, {memory}, capability {about.major}.{about.minor}; {used}"
    if torch.backends.mps.is_available():
        yield "MPS", f"available; GPU kernels are not used: {kernels.unusable(torch.device('mps'))}"
    if not gpus:
        yield "GPU", "torch finds no CUDA or ROCm device, so GPU kernels are not used"


def _folders() -> Iterator[tuple[str, str]]:
    try:
        from losspool.segmentation.data import cache_folder
        from losspool.segmentation.models import cached_weights
    except ImportError as error:
        yield "cache, weights", f"not examined without losspool[train] ({error})"
        return
    yield "cache", _writable(cache_folder())
    weights = cached_weights()
    found = [backbone for backbone, path in weights.items() if path.is_file()]
    missing = ", ".join(backbone for backbone in weights if backbone not in found)
    hint = f"; missing: {missing} (`losspool plan` downloads them, or takes --weights)" if missing else ""
    yield "weights", f"{next(iter(weights.values())).parent}: {', '.join(found) or 'none found'}{hint}"


def _writable(folder: Path) -> str:
    """Tested by writing a temporary file, in the folder or in the nearest parent that exists."""
    there = next(each for each in (folder, *folder.parents) if os.path.exists(each))  # unlike pathlib's, never raises
    try:
        with tempfile.TemporaryFile(dir=there):
            return f"{folder}: writable"
    except OSError as error:
        return f"{folder}: not writable ({error.strerror}); set XDG_CACHE_HOME to a folder that is"

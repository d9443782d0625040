"""ImageNet weights of the backbones: torchvision's files, found on this machine or downloaded."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import torch

from losspool.segmentation.base import UserError, replacing, say

URL = "https://download.pytorch.org/models"
FILES = {
    "resnet101": "resnet101-63fe2227.pth",
    "resnet50": "resnet50-0676ba61.pth",
    "resnet18": "resnet18-f37072fd.pth",
    "mobilenetv2": "mobilenet_v2-b0353104.pth",
}
"""torchvision's file of each backbone. Its name ends with the first digits of its SHA-256."""
_TIMEOUT = 30.0  # seconds without an answer
_CHUNK = 1 << 20


def pretrained_weights(backbone: str, given: Path | None = None) -> Path:
    """The file of a backbone's ImageNet weights: ``given`` or a file in it, or in torch's cache, or downloaded there.

    torch's cache is ``$TORCH_HOME/hub/checkpoints``, by default in the user's cache folder.
    """
    name, cached = FILES[backbone], cached_weights()[backbone]
    if given is not None:
        path = given / name if given.is_dir() else given
        if not path.is_file():
            raise UserError(f"{path}: no such weights file; {_by_hand(name)}")
        return _checked(path) if path.name == name else path
    return _checked(cached) if cached.is_file() else _downloaded(name, cached)


def cached_weights() -> dict[str, Path]:
    """Where the file of each backbone is looked for, and downloaded to."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    return {backbone: folder / name for backbone, name in FILES.items()}


def _checked(path: Path) -> Path:
    """Refuse a file whose hash is not the one in its name."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if not _fits(digest.hexdigest(), path.name):
        raise UserError(f"{path}: the file is damaged (its SHA-256 does not begin as its name says); delete it")
    return path


def _fits(digest: str, name: str) -> bool:
    return digest.startswith(Path(name).stem.rpartition("-")[2])


def _downloaded(name: str, path: Path) -> Path:
    url, digest = f"{URL}/{name}", hashlib.sha256()
    say(f"downloading {url} to {path}")
    with replacing(path) as partial:
        try:
            with open(partial, "wb") as file:
                for chunk in _chunks(url):
                    digest.update(chunk)
                    file.write(chunk)
        except OSError as error:  # urllib's errors among them
            reason = getattr(error, "reason", None) or error.strerror or error
            raise UserError(f"{url} cannot be downloaded ({reason}); {_by_hand(name)}") from None
        if not _fits(digest.hexdigest(), name):
            raise UserError(
                f"{url}: what was downloaded is not the file of this name: its SHA-256 is {digest.hexdigest()}"
            )
    return path


def _chunks(url: str) -> Iterator[bytes]:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            while chunk := answer.read(_CHUNK):
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise


def _by_hand(name: str) -> str:
    return f"download {URL}/{name} elsewhere and pass it with --weights, or pass --scratch to do without"

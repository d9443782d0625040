"""Networks of other packages by name: ``smp:Unet``, ``torchvision:deeplabv3_resnet50``, ``transformers:…``.

Nothing is downloaded, and no code or pickle of a checkpoint is run: weights come from local files of tensors.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from losspool.segmentation.base import NotImportableError, UserError, did_you_mean, first_line
from losspool.segmentation.models.weights import LoadReport

Args = dict[str, Any]


class TrainingOutput(NamedTuple):
    """What a network with an auxiliary head returns in training. In evaluation it returns the logits alone."""

    logits: Tensor
    aux: Tensor
    """The auxiliary head's logits, of the same shape."""


class Built(NamedTuple):
    """Another package's network."""

    network: nn.Module
    args: Args
    """Arguments that build it again, without files."""
    multiple: int = 1
    """Heights and widths of images must be multiples of this."""
    report: LoadReport | None = None


class Adapted(nn.Module):
    """Another package's network with the interface of ours: images (B, 3, H, W) to logits (B, C, h, w).

    Pads images to the sizes that the network takes, and cuts the logits of the padding off.
    """

    def __init__(self, network: nn.Module, multiple: int = 1) -> None:
        super().__init__()
        self.network, self._multiple = network, multiple
        self.stride: int | None = None
        self.stride = self._find_stride()
        self.train()  # transformers loads networks in evaluation mode

    def forward(self, images: Tensor) -> Any:
        height, width = images.shape[2:]
        if self._multiple > 1:
            images = F.pad(images, (0, -width % self._multiple, 0, -height % self._multiple))
        logits, aux = _unwrapped(self.network(images))
        if not isinstance(logits, Tensor) or logits.ndim != 4:
            return logits  # Model.check_logits names it
        if self.stride is not None:
            # Rounded up without a negative number, which ONNX divides towards zero.
            extra = self.stride - 1
            logits = logits[:, :, : (height + extra) // self.stride, : (width + extra) // self.stride]
        if not self.training or not isinstance(aux, Tensor):
            return logits
        if self.stride is not None:
            aux = aux[:, :, : logits.shape[2], : logits.shape[3]]
        return TrainingOutput(logits, aux)

    def _find_stride(self) -> int | None:
        """Pixels per cell of the logits, from a dry run; None if it is not the same whole number both ways."""
        height, width = 128, 192  # multiples of every usual stride
        with torch.no_grad():
            logits = self.eval()(torch.zeros(1, 3, height, width))
        if not isinstance(logits, Tensor) or logits.ndim != 4:
            return None
        stride = height // logits.shape[2]
        return stride if logits.shape[2:] == (height // stride, width // stride) else None


def unwrap_output(module: nn.Module, inputs: Any, output: Any) -> Any:
    """A forward hook: replaces the output by the logits in it, and in training by a :class:`TrainingOutput` if it has
    auxiliary logits."""
    logits, aux = _unwrapped(output)
    return TrainingOutput(logits, aux) if module.training and aux is not None else logits


def _unwrapped(output: Any) -> tuple[Any, Any]:
    """The logits and the auxiliary logits in a network's kind of output: an object, a dict or a tensor."""
    if isinstance(output, TrainingOutput):
        return output
    if hasattr(output, "logits"):
        return output.logits, None
    if isinstance(output, Mapping) and "out" in output:
        return output["out"], output.get("aux")
    return output, None


def _smp(package: Any, name: str, num_classes: int, args: Args) -> Built:
    kind = _class(package, name)
    if not str(args.get("encoder_name")).startswith("tu-"):  # only timm's encoders take further arguments
        for key in args:
            _check_name(key, inspect.signature(kind.__init__).parameters, "the network has no argument")
    network = kind(in_channels=3, classes=num_classes, **{**args, "encoder_weights": None})
    return Built(network, args, network.encoder.output_stride if network.requires_divisible_input_shape else 1)


def _torchvision(package: Any, name: str, num_classes: int, args: Args) -> Built:
    models = package.models
    _check_name(name, models.list_models(module=models.segmentation))
    build = models.get_model_builder(name)
    return Built(build(num_classes=num_classes, **{**args, "weights": None, "weights_backbone": None}), args)


def _transformers(package: Any, name: str, num_classes: int, args: Args) -> Built:
    kind = _class(package, name)
    settings = {key: value for key, value in args.items() if key != "pretrained"}
    known = kind.config_class().to_dict()
    for key in settings:
        _check_name(key, known, "the network has no argument")
    if "pretrained" not in args:
        return Built(kind(kind.config_class(num_labels=num_classes, **settings)), args)
    folder = Path(str(args["pretrained"])).expanduser()
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"model.args.pretrained must be a local folder with a .safetensors file, got {str(folder)!r}")
    network, found = kind.from_pretrained(
        str(folder),
        num_labels=num_classes,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        ignore_mismatched_sizes=True,  # a head for other classes
        output_loading_info=True,
        **settings,
    )
    stated = json.loads(network.config.to_json_string(use_diff=True))
    rebuild = {key: value for key, value in stated.items() if key in known and key not in _ABOUT_LABELS_OR_FILES}
    fresh = sorted({*found["missing_keys"], *(entry[0] for entry in found["mismatched_keys"])})
    loaded = len(network.state_dict()) - len(fresh)
    reason = "the folder has none of this shape"
    report = LoadReport(
        str(folder), "transformers", loaded, tuple(sorted(found["unexpected_keys"])), tuple(fresh), reason
    )
    return Built(network.float(), rebuild, report=report)


def _without_auxiliary_head(package: Any, name: str, args: Args) -> Args:
    """transformers use the auxiliary head in a loss of their own only: here it would stay as initialised."""
    if "use_auxiliary_head" not in _class(package, name).config_class().to_dict():
        return args
    if args.get("use_auxiliary_head"):
        raise UserError(
            f"model.args.use_auxiliary_head={args['use_auxiliary_head']!r} adds a head that is not trained; leave it "
            f"out: only torchvision's aux_loss=true and the TrainingOutput of your own network train an auxiliary head"
        )
    return {**args, "use_auxiliary_head": False}


_ABOUT_LABELS_OR_FILES = {
    *("num_labels", "id2label", "label2id"),
    *("architectures", "dtype", "model_type", "torch_dtype", "transformers_version", "_name_or_path"),
}


class Package(NamedTuple):
    """An entry of the table of packages."""

    module: str
    install: str
    """What ``pip install`` calls it."""
    build: Callable[[Any, str, int, Args], Built]
    """Takes the package, the network's name, the number of classes and ``model.args``."""
    complete: Callable[[Any, str, Args], Args] = lambda package, name, args: args
    """Checks and completes the arguments of a new network. Those of a checkpoint stay as they are."""


PACKAGES = {
    "smp": Package("segmentation_models_pytorch", "segmentation-models-pytorch", _smp),
    "torchvision": Package("torchvision", "torchvision", _torchvision),
    "transformers": Package("transformers", "transformers", _transformers, _without_auxiliary_head),
}
"""Packages by prefix."""

_DOWNLOADS = ("weights", "weights_backbone", "encoder_weights", "use_pretrained_backbone", "backbone", "pretrained")
"""Arguments with which one of the packages downloads something."""


def is_package_name(name: str) -> bool:
    """Whether a name is that of another package's network, such as ``smp:Unet``."""
    prefix, _, network = name.partition(":")
    return prefix in PACKAGES and network.isidentifier()


def build_package(name: str, num_classes: int, args: Mapping[str, Any], *, new: bool = False) -> tuple[Adapted, Built]:
    """Build the network ``prefix:name``: a ``new`` one, or that of a checkpoint. Any mistake becomes one sentence."""
    prefix, _, network = name.partition(":")
    package = PACKAGES[prefix]
    try:
        module = import_module(package.module)
    except ModuleNotFoundError as error:
        missing = package.install if error.name == package.module else error.name
        raise NotImportableError(f"model {name!r} needs the package {missing}: pip install {missing}") from error
    except Exception as error:  # importing another package may raise anything
        problem = f"{package.module} cannot be imported ({described(error)})"
        raise NotImportableError(f"model {name!r}: {problem}") from error
    try:
        _refuse_downloads(args, allowed=("pretrained",) if prefix == "transformers" else ())
        wanted = package.complete(module, network, dict(args)) if new else dict(args)
        built = package.build(module, network, num_classes, wanted)
        return Adapted(built.network, built.multiple), built
    except UserError as error:
        raise UserError(f"model {name!r}: {error}") from error
    except Exception as error:  # another package's code may raise anything
        raise UserError(f"model {name!r} {called(num_classes, args)} raised {described(error)}") from error


def called(num_classes: int, args: Mapping[str, Any]) -> str:
    """The call of a builder, for messages."""
    return ", ".join([f"called with {num_classes}", *(f"{key}={value!r}" for key, value in args.items())])


def described(error: Exception) -> str:
    """The type of an error and what it says, shortened: smp names all of its encoders."""
    return shorten(f"{type(error).__name__}: {first_line(error)}", 300, placeholder=" …")


def _refuse_downloads(args: Mapping[str, Any], allowed: Collection[str] = ()) -> None:
    for key, value in _entries(args):
        if key in _DOWNLOADS and key not in allowed and value not in (None, False):
            raise UserError(f"model.args.{key}={value!r} would download weights; name a file with model.weights")
        if key == "encoder_name" and ":" in str(value):
            raise UserError(f"model.args.{key}={value!r} would download a network; name one of the package's own")


def _entries(args: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All entries of nested mappings."""
    for key, value in args.items():
        yield key, value
        if isinstance(value, Mapping):
            yield from _entries(value)


def _class(package: Any, name: str) -> Any:
    """A network's class in a package."""
    kind = getattr(package, name, None)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        _check_name(name, [each for each in dir(package) if each != name and each[0].isupper()])
    return kind


def _check_name(name: str, known: Collection[str], problem: str = "the package has no network") -> None:
    if name not in known:
        near = did_you_mean(name, known)
        raise UserError(f"{problem} {name!r}{f', {near}' if near else ''}")

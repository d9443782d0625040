"""Every network overfits four images to an mIoU over 0.95, resumes to the bit with AdamW and EMA, and exports.

``PYTHONPATH=tests python tests/scripts/overfit_networks.py [NAME…]``; without a name, the built-in networks and those
of ``PACKAGES``, which must be installed. Prints a row of docs/models.md for each. The large backbones take minutes.
"""

import sys
import tempfile
from pathlib import Path

import torch

from four_images import check_network
from losspool.segmentation.base import Interrupted
from losspool.segmentation.models import MODELS
from other_packages import import_torchvision

SMP = ("model.args.encoder_name=resnet18",)
ADAMW = ("train.optimizer=adamw", "train.lr=0.001")
# Its BatchNorm has momentum 0.01 instead of 0.1: the running statistics need ten times the steps.
MOBILENETV3 = ("train.steps=600", "train.validate_every=100")
PACKAGES = {
    **{f"smp:{name}": SMP for name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3")},
    **{f"smp:{name}": SMP for name in ("DeepLabV3Plus", "PAN", "UPerNet")},
    "smp:Segformer": ("model.args.encoder_name=mit_b0", *ADAMW),
    "torchvision:fcn_resnet50": (),
    "torchvision:deeplabv3_resnet50": ("model.args.aux_loss=true",),
    "torchvision:deeplabv3_mobilenet_v3_large": MOBILENETV3,
    "torchvision:lraspp_mobilenet_v3_large": MOBILENETV3,
    "transformers:SegformerForSemanticSegmentation": ADAMW,
}
"""Other packages' networks, with what each needs beside the settings of all."""


def main() -> None:
    torch.set_num_threads(1)
    import_torchvision()
    failed = []
    for name in sys.argv[1:] or [*MODELS, *PACKAGES]:
        own = PACKAGES.get(name, ())
        try:
            with tempfile.TemporaryDirectory() as folder:
                miou = check_network(Path(folder), name, "train.steps=120", *own, size=64)
        except Interrupted:
            raise
        except Exception as error:  # the other networks are still of interest
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            miou = 0.0
        else:
            settings = ", ".join(f"`{each}`" for each in own)
            print(f"| `{name}` | {settings} | {miou:.3f} | yes | yes |", flush=True)
        failed += [] if miou > 0.95 else [name]
    sys.exit(f"not over 0.95, or not resumed or exported: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

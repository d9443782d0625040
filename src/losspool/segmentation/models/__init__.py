"""Networks on ResNet and MobileNetV2 backbones, pretrained weights, and networks of other packages."""

from losspool.segmentation.models.batch_norm import BATCH_NORMS, BatchNormMode
from losspool.segmentation.models.network import ALIGN_CORNERS, covered, enlarge
from losspool.segmentation.models.packages import PACKAGES, TrainingOutput
from losspool.segmentation.models.preprocessing import Preprocessing
from losspool.segmentation.models.pretrained import cached_weights, pretrained_weights
from losspool.segmentation.models.registry import Model, build_fine_tuned, build_from_spec, build_model, synchronised
from losspool.segmentation.models.spec import MODELS, ModelSpec, default_output_stride
from losspool.segmentation.models.unet import BUILD as UNET

__all__ = [
    "ALIGN_CORNERS",
    "BATCH_NORMS",
    "MODELS",
    "PACKAGES",
    "UNET",
    "BatchNormMode",
    "Model",
    "ModelSpec",
    "Preprocessing",
    "TrainingOutput",
    "build_fine_tuned",
    "build_from_spec",
    "build_model",
    "cached_weights",
    "covered",
    "default_output_stride",
    "enlarge",
    "pretrained_weights",
    "synchronised",
]

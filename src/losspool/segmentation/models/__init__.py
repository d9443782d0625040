"""Networks on ResNet and MobileNetV2 backbones, pretrained weights, and networks of other packages."""

from losspool.segmentation.models.batch_norm import BatchNormMode, freeze_batch_norm
from losspool.segmentation.models.deeplab import DeepLabV2
from losspool.segmentation.models.network import ALIGN_CORNERS, covered, enlarge
from losspool.segmentation.models.packages import PACKAGES, TrainingOutput
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET, Preprocessing
from losspool.segmentation.models.pretrained import cached_weights, pretrained_weights
from losspool.segmentation.models.registry import Model, build_fine_tuned, build_from_spec, build_model, synchronised
from losspool.segmentation.models.spec import MODELS, ModelSpec, default_output_stride
from losspool.segmentation.models.unet import BUILD as UNET
from losspool.segmentation.models.weights import read_weights

__all__ = [
    "ALIGN_CORNERS",
    "CAFFE",
    "IMAGENET",
    "MODELS",
    "PACKAGES",
    "UNET",
    "BatchNormMode",
    "DeepLabV2",
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
    "freeze_batch_norm",
    "pretrained_weights",
    "read_weights",
    "synchronised",
]

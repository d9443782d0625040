"""DeepLabV2 on ResNet and MobileNetV2 backbones, pretrained weights, and custom models by import path."""

from losspool.segmentation.models.batch_norm import freeze_batch_norm
from losspool.segmentation.models.deeplab import ALIGN_CORNERS, DeepLabV2, covered, enlarge
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET, Preprocessing
from losspool.segmentation.models.registry import MODELS, Model, ModelSpec, build_from_spec, build_model
from losspool.segmentation.models.unet import BUILD as UNET
from losspool.segmentation.models.weights import LoadReport, read_weights

__all__ = [
    "ALIGN_CORNERS",
    "CAFFE",
    "IMAGENET",
    "MODELS",
    "UNET",
    "DeepLabV2",
    "LoadReport",
    "Model",
    "ModelSpec",
    "Preprocessing",
    "build_from_spec",
    "build_model",
    "covered",
    "enlarge",
    "freeze_batch_norm",
    "read_weights",
]

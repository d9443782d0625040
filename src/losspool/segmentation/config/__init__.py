"""The settings of a run: their schema, and recipes that state them."""

from losspool.segmentation.config.listing import report_options
from losspool.segmentation.config.recipes import RECIPES, dump_config, flat, load_config, parse_reading
from losspool.segmentation.config.schema import (
    METHODS,
    TILINGS,
    Config,
    DataConfig,
    EvaluateConfig,
    ModelConfig,
    SamplingConfig,
    TrainConfig,
)
from losspool.segmentation.losses import LossConfig

__all__ = [
    "METHODS",
    "RECIPES",
    "TILINGS",
    "Config",
    "DataConfig",
    "EvaluateConfig",
    "LossConfig",
    "ModelConfig",
    "SamplingConfig",
    "TrainConfig",
    "dump_config",
    "flat",
    "load_config",
    "parse_reading",
    "report_options",
]

"""What a network reads of an image."""

import json

import pytest
import torch

from losspool.segmentation.base.errors import UserError
from losspool.segmentation.models import Preprocessing
from losspool.segmentation.models.preprocessing import CAFFE, IMAGENET

PIXEL = torch.tensor([255, 0, 51], dtype=torch.uint8)  # red, green, blue
READ = {
    "imagenet": (IMAGENET, [(1 - 0.485) / 0.229, (0 - 0.456) / 0.224, (0.2 - 0.406) / 0.225]),
    "caffe": (CAFFE, [51 - 104.008, 0 - 116.669, 255 - 122.675]),
}


@pytest.mark.parametrize(("preprocessing", "expected"), READ.values(), ids=READ)
def test_channels_are_scaled_shifted_and_ordered(preprocessing, expected):
    images = PIXEL.expand(2, 4, 5, 3)
    for x in (preprocessing.apply(images), preprocessing.apply(images.permute(0, 3, 1, 2))):
        assert x.shape == (2, 3, 4, 5)
        assert x.dtype == torch.float32
        assert x.is_contiguous()
        torch.testing.assert_close(x, torch.tensor(expected).view(1, 3, 1, 1).expand(2, 3, 4, 5), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("preprocessing", [IMAGENET, CAFFE])
def test_survives_json(preprocessing):
    assert Preprocessing.from_dict(json.loads(json.dumps(preprocessing.to_dict()))) == preprocessing


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {},
        {"mean": [0, 0]},
        {"mean": [0, 0, "0"]},
        {"mean": [0, 0, float("nan")]},
        {"mean": [0, 0, 0], "std": [1, 0, 1]},
        {"mean": [0, 0, 0], "scale": None},
        {"mean": [0, 0, 0], "bgr": 1},
        {"mean": [0, 0, 0], "gamma": 2.2},
    ],
)
def test_a_damaged_description_is_refused(stored):
    with pytest.raises(UserError, match="preprocessing"):
        Preprocessing.from_dict(stored)


@pytest.mark.parametrize(
    ("shape", "problem"), [((2, 4, 5), "got"), ((2, 4, 5, 1), "got"), ((2, 3, 5, 3), "are ambiguous")]
)
def test_other_shapes_are_refused(shape, problem):
    with pytest.raises(ValueError, match=problem):
        IMAGENET.apply(torch.zeros(shape, dtype=torch.uint8))


def test_floats_are_refused():
    with pytest.raises(TypeError, match=r"float32"):
        IMAGENET.apply(torch.zeros(1, 3, 4, 4))

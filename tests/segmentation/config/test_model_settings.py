"""The settings of the network: names, arguments, defaults by network, and the old name of ``model.batch_norm``."""

import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.config import dump_config, load_config


@pytest.fixture
def write(tmp_path):
    def recipe(text):
        path = tmp_path / "recipe.yaml"
        path.write_text(text)
        return path

    return recipe


@pytest.mark.parametrize(("old", "new"), [("true", "frozen"), ("false", "train"), ("null", None)])
def test_the_old_key_means_the_new_one(write, old, new):
    assert load_config(write(f"model: {{frozen_bn: {old}}}")).model.batch_norm == new
    assert load_config(write("model: {batch_norm: frozen}"), [f"model.frozen_bn={old}"]).model.batch_norm == new
    assert load_config(write(""), [f"model={{frozen_bn: {old}}}"]).model.batch_norm == new
    by_method = write(f"{{method: base, methods: {{base: {{model: {{frozen_bn: {old}}}}}}}}}")
    assert load_config(by_method).model.batch_norm == new
    assert "frozen_bn" not in dump_config(load_config(by_method))


def test_the_new_key_wins_over_the_old_one_of_an_earlier_layer(write):
    assert load_config(write("model: {frozen_bn: true}"), ["model.batch_norm=train"]).model.batch_norm == "train"


@pytest.mark.parametrize(
    ("text", "overrides", "sentence"),
    [
        ("model: {frozen_bn: true, batch_norm: train}", [], "recipe.yaml: model.frozen_bn is the old name of"),
        ("", ["model.batch_norm=train", "model.frozen_bn=true"], "model.frozen_bn is the old name of model.batch_norm"),
        ("model: {frozen_bn: perhaps}", [], "recipe.yaml: model.frozen_bn must be true or false, got 'perhaps'"),
        ("", ["model.batch_norm=sometimes"], "model.batch_norm must be one of frozen, train, sync, got 'sometimes'"),
        ("", ["model.output_stride=4"], "model.output_stride must be one of 8, 16, 32, got 4"),
        ("", ["model.aux_weight=-1"], "model.aux_weight must be at least 0, got -1"),
        ("", ["model.args=3"], "model.args must hold settings by name, got 3"),
        ("", ["model.args.since=2001-01-01"], "model.args must hold numbers, text, lists and mappings only, got"),
        ("", ["model.name=smq:Unet"], "smp:NAME, torchvision:NAME, transformers:NAME or an import path"),
    ],
)
def test_mistakes_name_the_field(write, text, overrides, sentence):
    with pytest.raises(UserError) as caught:
        load_config(write(text), overrides)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arguments_go_through_a_runs_config(write, tmp_path):
    recipe = write("model: {name: smp:Unet, args: {encoder_name: resnet34, decoder_channels: [32, 16]}}")
    config = load_config(recipe, ["model.args.encoder_depth=2", "model.args.encoder_name=resnet18"])
    assert config.model.args == {"encoder_name": "resnet18", "decoder_channels": [32, 16], "encoder_depth": 2}
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


@pytest.mark.parametrize(
    ("name", "stride"),
    [("deeplabv2_resnet18", 8), ("deeplabv3plus_resnet18", 16), ("fpn_resnet18", 32), ("mine.build", 8)],
)
def test_the_output_stride_is_stated_in_full(write, tmp_path, name, stride):
    """A run's config.yaml holds it, so that a later default cannot change it; 8 is what earlier versions wrote."""
    config = load_config(write(f"model: {{name: {name}}}"))
    assert config.model.output_stride == stride
    assert load_config(write(f"model: {{name: {name}}}"), ["model.output_stride=16"]).model.output_stride == 16
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config

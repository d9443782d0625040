"""The demo: its numbers are the reference's, and it says what the loss is for."""

import re

import pytest
import torch
import torch.nn.functional as F

from losspool import reference
from losspool.lab import demo, style

RARE = ("pole", "sign", "pedestrian")


@pytest.fixture(scope="module")
def scene():
    labels = demo.street()
    return labels, demo.logits_for(labels)


def run(folder, capsys):
    demo.main([str(folder)])
    return capsys.readouterr().out


def table(output):
    """class -> (share of pixels, of the mean's weight, of losspool's weight), in percent as printed."""
    rows = re.findall(r"^(\w+) +([\d.]+)% +([\d.]+)% +([\d.]+)%$", output, re.MULTILINE)
    return {name: tuple(map(float, values)) for name, *values in rows}


def test_the_scene_is_easy_where_large_and_hard_where_rare(scene):
    labels, logits = scene
    right = logits.argmax(1) == labels
    for index, name in enumerate(demo.CLASSES):
        region = labels == index
        if name in RARE:
            assert 0 < region.float().mean() < 0.02
            assert right[region].float().mean() < 0.5
        else:
            assert region.float().mean() > 0.2
            assert right[region].float().mean() > 0.95


def test_shares(tmp_path, capsys):
    rows = table(run(tmp_path, capsys))
    assert list(rows) == list(demo.CLASSES)
    for column in zip(*rows.values(), strict=True):
        assert sum(column) == pytest.approx(100, abs=0.05 * len(rows) + 1e-9)
    for name in RARE:
        assert rows[name][2] > 2 * rows[name][1] > 0


def test_every_number_is_the_references(tmp_path, capsys, scene):
    output = run(tmp_path, capsys)
    labels, logits = scene
    losses = F.cross_entropy(logits, labels, reduction="none")
    n = losses.numel()
    truth = reference.pool(losses, p=demo.P, m=demo.M * n)
    for index, (pixels, mean, pooled) in enumerate(table(output).values()):
        region = (labels == index).flatten()
        assert pixels == mean == pytest.approx(100 * region.float().mean().item(), abs=0.051)
        assert pooled == pytest.approx(100 * float(truth.weights[region].sum() / truth.weights.sum()), abs=0.051)

    def printed(pattern):
        return float(re.search(pattern, output, re.MULTILINE).group(1))

    saturated = (losses.double() > truth.alpha).double().mean().item()
    assert printed(r"^loss +([\d.]+)") == pytest.approx(losses.mean().item(), abs=1e-4)
    assert printed(r"plain mean, ([\d.]+)") == pytest.approx(truth.value, abs=1e-4)
    assert printed(r"^alpha +([\d.]+)") == pytest.approx(truth.alpha, abs=1e-4)
    assert printed(r"^tau +([\d.e-]+)") == pytest.approx(truth.tau, rel=1e-4)
    assert printed(r"pixel: ([\d.]+) times") == pytest.approx(truth.tau * n, abs=1e-4)
    assert printed(r"^saturated +([\d.]+)%") == pytest.approx(100 * saturated, abs=0.051)


def test_the_picture(tmp_path, capsys):
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        output = run(folder, capsys)
        assert output.splitlines()[-1].split(maxsplit=1) == ["picture", str(folder / "weights.png")]
        pictures.append((folder / "weights.png").read_bytes())
    assert pictures[0].startswith(b"\x89PNG\r\n\x1a\n")
    assert pictures[0] == pictures[1]


def test_what_the_picture_shows(scene):
    labels, logits = scene
    losses = F.cross_entropy(logits, labels, reduction="none")
    uniform = torch.full_like(losses, 1 / losses.numel())
    with style.styled():
        axes = demo.draw(labels, losses, uniform, 3 * uniform).axes[:4]
    shown = [torch.as_tensor(panel.images[0].get_array()) for panel in axes]
    for image, expected in zip(shown, (labels, losses, torch.ones(160, 240), torch.full((160, 240), 3.0)), strict=True):
        torch.testing.assert_close(image, expected.view(160, 240))
    assert axes[2].images[0].get_clim() == axes[3].images[0].get_clim()  # one colour bar for both


def test_wrong_usage(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    for arguments, reason in (([], "required: OUTDIR"), ([str(file)], "not a folder"), ([str(file / "x")], "cannot")):
        with pytest.raises(SystemExit) as stop:
            demo.main(arguments)
        assert stop.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert reason in captured.err

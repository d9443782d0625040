"""ImageNet weights are found on the machine or downloaded, and their hash is checked."""

import hashlib
import http.server
import threading

import pytest

from losspool.segmentation.base import UserError
from losspool.segmentation.models import pretrained, pretrained_weights

CONTENT = b"weights" * 1000
NAME = f"mobilenet_v2-{hashlib.sha256(CONTENT).hexdigest()[:8]}.pth"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A server on this machine in the place of torchvision's, and an empty cache."""
    folder = tmp_path / "site"
    folder.mkdir()
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(pretrained, "URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setitem(pretrained.FILES, "mobilenetv2", NAME)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (folder / NAME).write_bytes(CONTENT)
    yield folder, asked
    server.shutdown()
    server.server_close()


def test_a_file_is_downloaded_once_and_then_found(site, tmp_path):
    path = pretrained_weights("mobilenetv2")
    assert path == tmp_path / "torch/hub/checkpoints" / NAME
    assert path.read_bytes() == CONTENT
    assert pretrained_weights("mobilenetv2") == path
    assert len(site[1]) == 1
    assert [each.name for each in path.parent.iterdir()] == [NAME]


def test_a_given_file_or_folder_needs_no_download(site, tmp_path):
    assert pretrained_weights("mobilenetv2", site[0]) == site[0] / NAME
    own = tmp_path / "own.pth"
    own.write_bytes(b"other weights")
    assert pretrained_weights("mobilenetv2", own) == own
    assert site[1] == []
    with pytest.raises(
        UserError, match=r"nothing\.pth: no such weights file; download http.*--weights, or pass --scratch"
    ):
        pretrained_weights("mobilenetv2", tmp_path / "nothing.pth")


def test_a_wrong_hash_is_refused_and_nothing_kept(site, tmp_path):
    (site[0] / NAME).write_bytes(CONTENT[:-1])
    with pytest.raises(UserError, match="what was downloaded is not the file of this name: its SHA-256 is"):
        pretrained_weights("mobilenetv2")
    assert list((tmp_path / "torch/hub/checkpoints").iterdir()) == []
    cached = tmp_path / "torch/hub/checkpoints" / NAME
    cached.write_bytes(b"cut off")
    with pytest.raises(
        UserError, match=r"the file is damaged \(its SHA-256 does not begin as its name says\); delete it"
    ):
        pretrained_weights("mobilenetv2")


@pytest.mark.parametrize("trouble", ["missing", "no server"])
def test_without_the_network_a_sentence_names_the_url(site, monkeypatch, trouble):
    (site[0] / NAME).unlink()
    if trouble == "no server":
        monkeypatch.setattr(pretrained, "URL", "http://127.0.0.1:9")
    message = rf"{pretrained.URL}/{NAME} cannot be downloaded \(.+\); download {pretrained.URL}/{NAME} elsewhere"
    with pytest.raises(UserError, match=message) as caught:
        pretrained_weights("mobilenetv2")
    assert "\n" not in str(caught.value)

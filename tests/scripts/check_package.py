"""``make package``: build wheel and sdist, and try the wheel where only torch and its requirements are installed."""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ("*.yaml", "*.json", "*.html", "*.css", "*.js", "LICENSE", "SHA256SUMS", "py.typed")
"""Files of the package beside its code."""
LOSS = """
import torch, losspool
losspool.cross_entropy(torch.randn(2, 3, 8, 8, requires_grad=True), torch.randint(3, (2, 8, 8))).backward()
"""
SENTENCES = {
    (): "Only the loss is installed",
    ("doctor",): "not examined without losspool[train]",
    ("train", "streets"): "losspool train needs more packages than the loss: pip install 'losspool[train]'",
    ("demo",): "losspool demo needs more packages than the loss: pip install 'losspool[lab]'",
    ("export", "run", "net.onnx"): "pip install 'losspool[train,export]'",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel, sdist = build(Path(folder) / "dist")
        check_files(wheel, sdist)
        python = environment(Path(folder) / "environment", wheel)
        done = run(python, "-I", "-c", LOSS, cwd=folder)
        assert done.returncode == 0, done.stderr
        for words, sentence in SENTENCES.items():
            done = run(python.with_name("losspool"), *words, cwd=folder)
            assert sentence in done.stdout + done.stderr, (words, done)
            assert "Traceback" not in done.stderr, done.stderr
    print("The loss works from the wheel; every command without its extra says so.")


def run(*command: object, cwd: object = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)


def build(folder: Path) -> list[Path]:
    """The wheel is built from the sdist, as an installer without wheels would."""
    copy = folder.parent / "source"  # setuptools leaves files beside the source
    # What is no part of the source, and other tools may be writing at this moment, is not copied.
    made = ("build", "_build", "results", "dist", "*.egg-info", "__pycache__", ".*_cache", "demo", "lab-runs")
    ignored = shutil.ignore_patterns(".git", ".venv*", *made)
    shutil.copytree(ROOT, copy, ignore=ignored)
    for command in (["build", "--no-isolation", "--outdir", folder, copy], ["twine", "check", "--strict"]):
        done = run(sys.executable, "-m", *command, *(folder.iterdir() if command[0] == "twine" else ()))
        assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return [wheel, sdist]


def check_files(wheel: Path, sdist: Path) -> None:
    """Both hold every file of the package; the wheel holds nothing else."""
    source = ROOT / "src"
    expected = {path.relative_to(source).as_posix() for kind in ("*.py", *DATA) for path in source.rglob(kind)}
    expected = {name for name in expected if name.startswith("losspool/")}
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    own = {name for name in sizes if ".dist-info/" not in name} - {"losspool/_commit.txt"}
    assert own == expected, sorted(own ^ expected)
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/src/")[2] for name in archive.getnames()}
    assert expected <= packed, sorted(expected - packed)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {len(sizes)} files; {sdist.name}: ", end="")
    print(f"{sdist.stat().st_size / 1e6:.2f} MB")
    kinds: dict[str, list[int]] = {}
    for name, size in sizes.items():
        kinds.setdefault("/".join(name.split("/")[:3][:-1]) or name, []).append(size)
    for kind, found in sorted(kinds.items()):
        print(f"  {kind:<28} {len(found):>4} files {sum(found):>10,} bytes")


def environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel, torch and what torch requires, as this one has them."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in requirements("torch", set()):
        files = metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__", "bin")}:
            (packages / top).symlink_to(metadata.distribution(name).locate_file(top))
    done = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


def requirements(name: str, seen: set[str]) -> set[str]:
    """The package and those that it requires here, without extras."""
    if name in seen:
        return seen
    try:
        needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return seen
    seen.add(name)
    for text in needed:
        if "extra ==" not in text:
            requirements(re.match(r"[\w.-]+", text)[0], seen)
    return seen


if __name__ == "__main__":
    main()

"""Pool the losses of a synthetic street and show the weights: ``python -m losspool.lab.demo OUTDIR``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

import losspool
from losspool.lab import style
from losspool.lab.figures import output_folder

HEIGHT, WIDTH = 160, 240
P, M = 1.3, 0.25
CLASSES = {  # Okabe and Ito's colours, made for colour-blind readers
    "sky": "#56b4e9",
    "building": "#b3b3b3",
    "road": "#4d4d4d",
    "pole": "#f0e442",
    "sign": "#d55e00",
    "pedestrian": "#cc79a7",
}


def street() -> Tensor:
    """Labels of shape (1, H, W): three large regions, and three things of a few hundred pixels at most."""
    names = list(CLASSES)
    labels = torch.full((HEIGHT, WIDTH), names.index("sky"))

    def box(name: str, top: int, bottom: int, left: int, right: int) -> None:
        labels[top:bottom, left:right] = names.index(name)

    for left, right, top in ((0, 52, 28), (52, 88, 58), (88, 150, 66), (150, 190, 44), (190, WIDTH, 18)):
        box("building", top, 112, left, right)
    box("road", 104, HEIGHT, 0, WIDTH)
    for left, top in ((64, 34), (202, 46)):
        box("pole", top, 122, left, left + 3)
    box("sign", 38, 52, 58, 73)
    for left, foot in ((116, 126), (166, 134)):
        box("pedestrian", foot - 26, foot, left, left + 8)
        box("pedestrian", foot - 32, foot - 26, left + 2, left + 6)
    return labels.unsqueeze(0)


def logits_for(labels: Tensor) -> Tensor:
    """Logits (1, C, H, W) as of a coarse network that met few rare pixels: blurred evidence plus the classes' prior."""
    generator = torch.Generator().manual_seed(0)
    one_hot = F.one_hot(labels, len(CLASSES)).movedim(-1, 1).float()  # (1, H, W) -> (1, C, H, W)
    blurred = F.avg_pool2d(F.pad(one_hot, (7, 7, 7, 7), mode="replicate"), 15, stride=1)
    coarse = torch.randn(1, len(CLASSES), HEIGHT // 10, WIDTH // 10, generator=generator)
    noise = F.interpolate(coarse, (HEIGHT, WIDTH), mode="bicubic", align_corners=False)
    prior = one_hot.mean((0, 2, 3)).log().view(1, -1, 1, 1)
    return 4.5 * blurred + 0.3 * noise + 0.5 * prior


def shares(labels: Tensor, weights: Tensor) -> list[float]:
    """Each class's part of the sum of all weights."""
    mass = torch.bincount(labels.flatten(), weights.flatten().double(), minlength=len(CLASSES))
    return (mass / mass.sum()).tolist()


def draw(labels: Tensor, losses: Tensor, uniform: Tensor, pooled: Tensor) -> Figure:
    """Four pictures in a row; weights times n, so that the plain mean is 1 everywhere. Call inside ``styled()``."""
    n = labels.numel()
    largest = float(pooled.max()) * n
    figure = Figure(figsize=(12.5, 3.05), layout="compressed")
    places = figure.subplot_mosaic("abcd;efgg", height_ratios=[1, 0.05])
    scene, loss, mean, ours, legend, loss_bar, weight_bar = (places[letter] for letter in "abcdefg")

    scene.imshow(labels[0].numpy(), cmap=ListedColormap(list(CLASSES.values())), vmin=0, vmax=len(CLASSES) - 1)
    loss_image = loss.imshow(losses[0].numpy(), vmin=0)
    mean.imshow((uniform[0] * n).numpy(), vmin=0, vmax=largest)
    weight_image = ours.imshow((pooled[0] * n).numpy(), vmin=0, vmax=largest)
    titles = ("labels", "loss of each pixel", "weights: plain mean", "weights: losspool")
    for axes, title in zip((scene, loss, mean, ours), titles, strict=True):
        axes.set(title=title, xticks=[], yticks=[])
        axes.spines[:].set_visible(False)

    figure.colorbar(loss_image, cax=loss_bar, orientation="horizontal", label="cross-entropy")
    text = f"weight · n  (losspool: p = {P:g}, m = {M:g})"
    figure.colorbar(weight_image, cax=weight_bar, orientation="horizontal", label=text)
    patches = [Patch(facecolor=colour, label=name) for name, colour in CLASSES.items()]
    legend.legend(handles=patches, loc="upper center", ncols=3, frameon=False, handlelength=1, columnspacing=1.2)
    legend.axis("off")
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    folder = output_folder("python -m losspool.lab.demo", "Pool the losses of a synthetic street.", arguments)
    labels = street()
    logits = logits_for(labels)
    n = labels.numel()
    print(f"Pools the {n:,} cross-entropies of a synthetic {HEIGHT} x {WIDTH} street with p = {P:g}, m = {M:g}")
    print("and compares whom the loss listens to with the plain mean, which weights every pixel alike.\n")

    losses = F.cross_entropy(logits, labels, reduction="none")
    stats = losspool.PoolingStats()
    value = losspool.cross_entropy(logits, labels, p=P, m=M, stats=stats)
    alpha, tau, saturated, pooled = (cast(Tensor, x) for x in (stats.alpha, stats.tau, stats.saturated, stats.weights))
    uniform = torch.full_like(losses, 1 / n)

    columns = [shares(labels, weights) for weights in (torch.ones_like(losses), uniform, pooled)]
    print(f"{'class':<12}{'pixels':>10}{'weight: mean':>16}{'weight: losspool':>20}")
    for name, *row in zip(CLASSES, *columns, strict=True):
        print(f"{name:<12}{row[0]:>10.1%}{row[1]:>16.1%}{row[2]:>20.1%}")

    with style.styled():
        (path,) = style.save(draw(labels, losses, uniform, pooled), Path(folder, "weights"), ".png")
    print(f"\nloss       {losses.mean():.4f} plain mean, {value:.4f} losspool")
    print(f"alpha      {alpha.item():.4f}, the loss from which on a pixel is saturated")
    print(f"tau        {tau.item():.4e}, the weight of a saturated pixel: {tau.item() * n:.4f} times the mean's")
    print(f"saturated  {saturated.item() / n:.1%} of the pixels")
    print(f"picture    {path}")


if __name__ == "__main__":
    main()

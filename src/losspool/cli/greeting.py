"""``losspool`` alone, and ``losspool doctor``: both work where only the loss is installed."""

from __future__ import annotations

import sys

from losspool import __version__

GREETING = f"""\
losspool {__version__}: loss max-pooling for PyTorch

In your own code, losspool.cross_entropy(logits, labels) replaces F.cross_entropy.
This command trains, evaluates and exports segmentation networks, and compares losses.

Try:
  losspool demo        train with the plain loss and with loss max-pooling; write a report
  losspool plan DATA   propose a recipe for your own images and labels
  losspool doctor      show versions, devices and what is missing

losspool --help lists all commands.
"""

NEEDED_EXTRA = {"demo": "lab", "lab": "lab", "export": "train,export"}
"""The extra of a command; ``train`` for all others."""


def greet() -> None:
    print(GREETING, end="")


def doctor() -> None:
    """Show versions, devices, GPU kernels, cache and weights, for bug reports."""
    from losspool.segmentation.doctor import examine

    for name, found in examine():
        print(f"{name + ':':<17} {found}")


def main_without_extras() -> None:
    """The entry point where the packages of the command are missing."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words == ["doctor"]:
        doctor()
    elif words:
        extra = NEEDED_EXTRA.get(words[0], "train")
        sys.exit(f"losspool {words[0]} needs more packages than the loss: pip install 'losspool[{extra}]'")
    else:
        greet()
        print("\nOnly the loss is installed: all commands except doctor need pip install 'losspool[lab]'")

"""Logits of three classes, and targets of every kind for them."""

import torch

_generator = torch.Generator().manual_seed(0)
LOGITS = torch.randn(2, 3, 4, 5, generator=_generator)
LABELS = torch.randint(0, 3, (2, 4, 5), generator=_generator)
SHARES = torch.rand(2, 3, 4, 5, generator=_generator).softmax(1)
FINE = LABELS.repeat_interleave(2, 1).repeat_interleave(2, 2)
"""Labels of twice the logits' resolution."""

"""Experiments on top of the loss: figures and demonstrations. Needs ``losspool[lab]``."""

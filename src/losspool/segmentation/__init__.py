"""The paper's segmentation system, built on the loss: data, sampling, models, training, evaluation."""

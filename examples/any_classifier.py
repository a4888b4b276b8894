"""Certify a classifier that has nothing to do with PyTorch: any function from inputs to scores will do."""

import numpy as np
import torch

import smoothcert

generator = np.random.default_rng(0)
centres = generator.normal(size=(4, 16))


def predict_proba(features):
    """Classify by the nearest of four centres, as a fitted scikit-learn model would: arrays in, arrays out."""
    distances = np.linalg.norm(np.asarray(features)[:, None] - centres, axis=2)
    scores = np.exp(-distances)
    return scores / scores.sum(axis=1, keepdims=True)


smoothed = smoothcert.SmoothedClassifier(predict_proba, sigma=0.5, num_classes=4)
certificate = smoothed.certify(torch.tensor(centres[2], dtype=torch.float32), n=20_000)
print(f"prediction {certificate.prediction}, radius {certificate.radius:.3f}")

nearest = min(np.linalg.norm(centres[2] - centres[i]) for i in (0, 1, 3)) / 2
print(f"the true distance to the nearest border is {nearest:.3f}")

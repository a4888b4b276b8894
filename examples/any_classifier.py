"""Certify a classifier that does not use PyTorch: a function from NumPy arrays to scores."""

import numpy as np
import torch

import smoothcert

generator = np.random.default_rng(0)
centers = generator.normal(size=(4, 16))


def predict_proba(features):
    """Return class probabilities by distance to four centers, like a fitted scikit-learn model."""
    distances = np.linalg.norm(np.asarray(features)[:, None] - centers, axis=2)
    scores = np.exp(-distances)
    return scores / scores.sum(axis=1, keepdims=True)


smoothed = smoothcert.SmoothedClassifier(predict_proba, sigma=0.5, num_classes=4)
certificate = smoothed.certify(torch.tensor(centers[2], dtype=torch.float32), n=20_000)
print(f"prediction {certificate.prediction}, radius {certificate.radius:.3f}")

nearest = min(np.linalg.norm(centers[2] - centers[i]) for i in (0, 1, 3)) / 2
print(f"distance to the decision boundary: {nearest:.3f}")

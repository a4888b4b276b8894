"""Certify an MLP on a batch of feature vectors, with sigma in the units of the input."""

import torch
from torch import nn

import smoothcert

torch.manual_seed(0)
centers = torch.randn(3, 8)
labels = torch.randint(3, (600,))
features = centers[labels] + 0.4 * torch.randn(600, 8)

mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(mlp.parameters(), lr=0.01)
for _ in range(200):
    loss = nn.functional.cross_entropy(mlp(features + 0.5 * torch.randn_like(features)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

smoothed = smoothcert.SmoothedClassifier(mlp, sigma=0.5, num_classes=3)
certificate = smoothed.certify(features[:10], n=10_000)
rows = zip(labels[:10].tolist(), certificate.prediction.tolist(), certificate.radius.tolist(), strict=True)
for label, prediction, radius in rows:
    print(f"label {label}, prediction {prediction:2}, radius {radius:.3f}")

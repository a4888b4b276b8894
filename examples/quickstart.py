"""Train a small network with noise for a few seconds, then certify a digit in three lines."""

import torch
from torch import nn

import smoothcert

torch.manual_seed(0)
train = smoothcert.load_dataset("mnist-mini", "train")
test = smoothcert.load_dataset("mnist-mini", "test")

model = smoothcert.create_model("lenet")
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for _ in range(150):
    chosen = torch.randint(len(train), (64,))
    noisy = train.floats(chosen) + 0.25 * torch.randn(64, 1, 28, 28)
    loss = nn.functional.cross_entropy(model(noisy), train.labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

image = test.floats([0])[0]
smoothed = smoothcert.SmoothedClassifier(model, sigma=0.25, num_classes=10)
certificate = smoothed.certify(image, n=10_000)

print(f"label {int(test.labels[0])}, prediction {certificate.prediction}")
print(f"no perturbation with an l2 norm below {certificate.radius:.3f} changes it (confidence 99.9 %)")

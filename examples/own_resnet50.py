"""Certify a ResNet-50 that expects standardized inputs: `adapt_inputs` adds the noise to images in [0, 1].

The weights are random, so that the example needs no download. Load your own instead.
"""

import torch

import smoothcert

torch.manual_seed(0)
network = smoothcert.create_model("resnet50", num_classes=1000).eval()  # or torchvision.models.resnet50(...)
model = smoothcert.adapt_inputs(network, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

image = torch.rand(3, 224, 224)
smoothed = smoothcert.SmoothedClassifier(model, sigma=0.05, num_classes=1000)
certificate = smoothed.certify(image, n0=8, n=24)
print(
    f"prediction {certificate.prediction}, radius {certificate.radius:.3f}, votes {int(certificate.counts.max())} of 24"
)

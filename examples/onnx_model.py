"""Certify an ONNX model as it is: a convolutional network for MNIST that comes with the package qonnx.

pip install --no-deps -r examples/requirements.txt
python examples/onnx_model.py
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch

import smoothcert

try:
    import onnxruntime
except ImportError:
    raise SystemExit("onnxruntime is not installed; see the beginning of this file.") from None

package = importlib.util.find_spec("qonnx")
if package is None:
    raise SystemExit("The package qonnx is not installed; see the beginning of this file.")
folder = Path(next(iter(package.submodule_search_locations)))
session = onnxruntime.InferenceSession(folder / "data/onnx/mnist-conv/model.onnx")
(name,) = (tensor.name for tensor in session.get_inputs())


def scores(x):
    """Return the scores of a batch. This network takes one image at a time, with values from 0 to 255."""
    images = 255 * x.numpy()
    return torch.from_numpy(np.concatenate([session.run(None, {name: image[None]})[0] for image in images]))


data = smoothcert.load_dataset("mnist-mini", "test")
smoothed = smoothcert.SmoothedClassifier(scores, sigma=0.25, num_classes=10)
records = smoothcert.certify_dataset(smoothed, data, n=1000, indices=range(0, len(data), 25), model={"name": "qonnx"})
accuracy = smoothcert.metrics.certified_accuracy(records, at=[0.0, 0.25, 0.5])
print("certified accuracy at 0, 0.25, 0.5:", *(f"{100 * value:.1f} %" for value in accuracy))
print(f"average certified radius: {smoothcert.metrics.average_certified_radius(records):.3f}")

"""Make src/smoothcert/data/mnist-mini.npz: the first 600 training and 100 test images of each MNIST digit.

    python scripts/make_mnist_mini.py DATA_DIR     (the folder that contains mnist/)

The images keep the order of the original files; their positions in those files are stored beside them.
"""

import sys
from pathlib import Path

import numpy as np

from smoothcert.data import load_dataset

OUT = Path(__file__).parent.parent / "src/smoothcert/data/mnist-mini.npz"


def excerpt(split: str, per_class: int, root: str) -> dict[str, np.ndarray]:
    data = load_dataset("mnist", split, root)
    labels = data.labels.numpy()
    index = np.sort(np.concatenate([np.flatnonzero(labels == digit)[:per_class] for digit in range(10)]))
    return {
        f"{split}_images": data.images[index, 0].numpy(),
        f"{split}_labels": labels[index].astype(np.uint8),
        f"{split}_index": index.astype(np.int32),
    }


if __name__ == "__main__":
    np.savez_compressed(OUT, **excerpt("train", 600, sys.argv[1]), **excerpt("test", 100, sys.argv[1]))
    print(f"{OUT}: {OUT.stat().st_size / 1e6:.2f} MB")

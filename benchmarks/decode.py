"""Measure the images per second that are decoded and cropped for ImageNet training and testing.

    python benchmarks/decode.py FOLDER [--workers 1 2] [--seconds 5]

FOLDER contains full-size photographs, one folder per class. Workers are the processes that decode images for training;
one worker uses one core.
"""

import argparse
import itertools
import time
from pathlib import Path

import PIL
import torch

from smoothcert.data.image_data import ImageData
from smoothcert.data.readers.folder import read_folder
from smoothcert.distributed.ranks import BatchShare
from smoothcert.training.streaming import StreamedData


def training(data, workers, seconds, batch=32):
    source = StreamedData(data, torch.device("cpu"), "resized-crop-flip", None, seed=0, workers=workers)
    steps = ((step, BatchShare(0, batch, batch), torch.randint(len(data), (batch,))) for step in itertools.count())
    stream = source.stream(steps)
    for _ in range(2 * workers):  # skip the batches decoded ahead
        next(stream)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(stream)
        count += batch
    return count / (time.perf_counter() - began)


def tests(data, seconds):
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        data.images[torch.tensor([count % len(data)])]
        count += 1
    return count / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels, classes = read_folder(args.folder, 256, 224)
    data = ImageData("imagenet", "train", images, labels, classes, (0.0,) * 3, (1.0,) * 3)
    print(f"Pillow {PIL.__version__}, {len(data)} photographs, 224x224")
    for workers in args.workers:
        print(f"training, {workers} worker processes: {training(data, workers, args.seconds):.0f} images/s")
    print(f"tests, one at a time: {tests(data, args.seconds):.0f} images/s")


if __name__ == "__main__":
    main()

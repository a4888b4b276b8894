"""Make the quantized networks of the demo page: train missing networks, and round the weights of all.

    python scripts/demo_networks.py RUNS [--data-dir DIR]

The CAT-RS networks are the bundled pretrained models (150 epochs). The Gaussian networks are trained here for 20
epochs, and an ordinary network for 6 epochs with negligible noise. They are stored in RUNS, and a second call does not
train them again. Weights are rounded to 8-bit integers, with one step size per output; coarse steps compress well. The
script prints the accuracy under noise of the original and of the quantized networks.
"""

import argparse
import zlib
from pathlib import Path

import torch
from safetensors.numpy import save

import smoothcert
from smoothcert.demo.networks import FOLDER, SIGMAS

# Step of each layer's weights in standard deviations of an output's weights. None: the largest weight becomes 127.
STEPS = {"conv1": None, "conv2": 0.15, "fc1": 0.5, "fc2": None}
SHORT = {"schedule": "one-cycle", "learning_rate": 0.05}


def main(runs, data_dir):
    for sigma in SIGMAS:
        name = f"mnist-catrs-{sigma:.2f}"
        quantize(smoothcert.load_pretrained(name), f"catrs-{sigma:.2f}", sigma, data_dir)
        config = smoothcert.load_recipe(
            f"mnist-gaussian-{sigma:.2f}", name=f"demo-gaussian-{sigma:.2f}", epochs=20, **SHORT
        )
        quantize(trained(config, runs, data_dir), f"gaussian-{sigma:.2f}", sigma, data_dir)
    ordinary = smoothcert.load_recipe("mnist-gaussian-0.25", name="demo-ordinary", sigma=0.01, epochs=6, **SHORT)
    quantize(trained(ordinary, runs, data_dir), "ordinary", 0.01, data_dir)


def trained(config, runs, data_dir):
    smoothcert.train_run(config, runs, data_dir=data_dir, device="cpu")
    return smoothcert.load_checkpoint(runs / config.name)


def quantize(checkpoint, name, sigma, data_dir):
    tensors, model = {}, checkpoint.model.eval()
    before = accuracy(model, sigma, data_dir)
    for layer, step in STEPS.items():
        module = model.network.get_submodule(layer)
        weight = module.weight.detach().flatten(1)
        widest = weight.abs().amax(1) / 127
        scale = widest if step is None else torch.maximum(step * weight.std(1), widest)
        whole = (weight / scale[:, None]).round().clamp(-127, 127)
        tensors |= {
            f"{layer}.weight": whole.to(torch.int8).view_as(module.weight).numpy(),
            f"{layer}.scale": scale.numpy(),
        }
        tensors[f"{layer}.bias"] = module.bias.detach().numpy()
        with torch.no_grad():
            module.weight.copy_((whole * scale[:, None]).view_as(module.weight))
    about = checkpoint.about
    facts = {
        "name": about["name"],
        "epochs": str(about["epoch"]),
        "sigma": str(about["sigma"]),
        "sha256": checkpoint.sha256,
    }
    # Use a gzip container (31), but do not search for repetitions: weights have none.
    packing = zlib.compressobj(9, zlib.DEFLATED, 31, 9, zlib.Z_HUFFMAN_ONLY)
    packed = packing.compress(save(tensors, metadata=facts)) + packing.flush()
    (FOLDER / f"{name}.safetensors.gz").write_bytes(packed)
    after = accuracy(model, sigma, data_dir)
    print(f"{name}: {len(packed):,} bytes, accuracy under noise {before:.2%} float, {after:.2%} quantized")


@torch.no_grad()
def accuracy(model, sigma, data_dir):
    """Return the share of correct votes on the MNIST test images, with one noise sample per image."""
    data, noise = smoothcert.load_dataset("mnist", "test", data_dir), torch.Generator().manual_seed(0)
    hits = 0
    for start in range(0, len(data), 1000):
        images = data.floats(range(start, start + 1000))
        noisy = images + sigma * torch.randn(images.shape, generator=noise)
        hits += int((model(noisy).argmax(1) == data.labels[start : start + 1000]).sum())
    return hits / len(data)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data-dir")
    options = parser.parse_args()
    main(options.runs, options.data_dir)

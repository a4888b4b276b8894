"""Measure milliseconds per training step for each method and network, with the recipes for sigma 0.5.

    python benchmarks/train_step.py [--device cuda] [--networks lenet cifar_resnet20] [--precision tf32]
        [--together 1 2 4] [--json FILE]

A step includes everything: gathering and augmenting images, noise, attack, loss, backward pass, optimizer. On a CUDA
device it is replayed as a graph. Images are random. `--together` trains several runs at once, each on its own stream;
the time is then divided by the total number of steps of all runs.
"""

import itertools

import torch
from measuring import make_parser, print_header, timed, write_json

import smoothcert
from smoothcert.methods import METHODS, create_method
from smoothcert.runtime.environment import choose_device
from smoothcert.training.batches import ResidentData
from smoothcert.training.graph_stepper import GraphStepper
from smoothcert.training.stepper import Stepper, new_stream

NETWORKS = {
    "lenet": ("mnist", (1, 28, 28)),
    "cifar_resnet20": ("cifar10", (3, 32, 32)),
    "cifar_resnet110": ("cifar10", (3, 32, 32)),
}


def measure(name, network, device, precision, seconds, together=1):
    """Return the median milliseconds per step, the images per step, and the number of timed steps."""
    config = smoothcert.load_recipe(f"{NETWORKS[network][0]}-{name}-0.50")
    method = create_method(name, config.sigma, config.options)
    data = random_data(network, device, config.augmentation)
    lanes = [(make_stepper(network, method, data, precision, seed), new_stream(device)) for seed in range(together)]
    size, counter = config.batch // method.split, itertools.count()
    indices = torch.arange(size, device=device)

    def take_steps(count):
        for step in itertools.islice(counter, count):
            for stepper, stream in lanes:
                with torch.cuda.stream(stream):
                    stepper.set_position(20, step, 0.01)
                    stepper.take_step((indices,), size)

    # A graph is captured after a few steps.
    warm_up, block, fewest = (5, 20, 3) if device.type == "cuda" else (1, 1, 1)
    take_steps(warm_up)
    median, rounds = timed(lambda: take_steps(block), seconds, device, fewest)
    return 1000 * median / (block * together), size, rounds * block * together


def random_data(network, device, augmentation):
    """Return random images in memory, with labels and soft labels."""
    torch.manual_seed(0)
    images = 4096
    pixels = torch.randint(256, (images, *NETWORKS[network][1]), dtype=torch.uint8, device=device)
    labels = torch.randint(10, (images,), device=device)
    return ResidentData(pixels, labels, torch.softmax(torch.randn(images, 10, device=device), dim=1), augmentation)


def make_stepper(network, method, data, precision, seed):
    """Return a stepper for a new network; on a CUDA device one that replays graphs."""
    torch.manual_seed(seed)
    device, on_gpu = data.device, data.device.type == "cuda"
    model = smoothcert.create_model(network, in_channels=NETWORKS[network][1][0]).to(device).train()
    rate = torch.tensor(0.01, device=device) if on_gpu else 0.01
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-4, fused=on_gpu)
    kind = GraphStepper if on_gpu else Stepper
    return kind(model, method, optimizer, data, seed=seed, precision=precision)


def main():
    parser = make_parser(__doc__, seconds=3.0)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--precision", default="fp32")
    parser.add_argument(
        "--together", nargs="+", type=int, default=[1], help="numbers of runs to train at once (default: 1)"
    )
    args = parser.parse_args()
    device = choose_device(args.device)
    about = print_header(device, args.precision)
    rows = []
    for network, name, together in itertools.product(args.networks, args.methods, args.together):
        milliseconds, images, repeats = measure(name, network, device, args.precision, args.seconds, together)
        row = {"network": network, "method": name, "together": together, "ms": milliseconds, "images": images}
        rows.append({**row, "steps": repeats})
        runs = f", {together} runs together" if together > 1 else ""
        print(f"{network:16} {name:22} {milliseconds:9.3f} ms per step of {images} images{runs}", flush=True)
    write_json(args.json, {"about": about, "precision": args.precision, "rows": rows})


if __name__ == "__main__":
    main()

"""What a run, or a table of the paper, takes on one, eight or sixty-four GPUs: a model with few numbers, all here.

What a method does to an input follows from its steps (`workload`), and how fast a network does it was measured on one
H200. docs/scaling.md has the tables that this gives, and the assumptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smoothcert.dataset_names import canonical_name
from smoothcert.training.compute import method_of, passes, split_of, step_inputs
from smoothcert.training.config import TrainConfig
from smoothcert.training.epochs import plan_epoch
from smoothcert.training.recipes import load_recipe, paper_tables
from smoothcert.training.teachers import teacher_config

GPUS = (1, 8, 64)
IMAGES = {
    "mnist-mini": (6_000, 1_000),
    "mnist": (60_000, 10_000),
    "fashion_mnist": (60_000, 10_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "imagenet": (1_281_167, 50_000),
}


@dataclass(frozen=True)
class Rate:
    """What one H200 does with a network.

    training: passes a second in training steps. voting: noisy inputs a second in certification. shortest: seconds
    that a pass of one training step takes however few inputs it has. values: floats that an input leaves in memory
    for the backward pass.
    """

    training: float
    voting: float
    shortest: float
    values: float
    weights: float


RATES = {
    # In TF32 CAT-RS's compiled step of 3,584 passes takes 1.00 ms, SmoothAdv's of 5,888 takes 1.88 ms.
    "lenet": Rate(3.35e6, 28e6, 5e-5, 2.5e4, 4.3e5),
    # CAT-RS's compiled steps take 5.35 ms and, of ResNet-110, 25.1 ms, in bfloat16.
    "cifar_resnet20": Rate(6.7e5, 2.18e6, 4e-4, 4.5e5, 2.7e5),
    "cifar_resnet110": Rate(1.43e5, 4.29e5, 2e-3, 2.5e6, 1.7e6),
    # The recipes' steps, uncompiled, do 10,500 (SmoothAdv) to 14,100 (Gaussian) passes a second.
    "resnet50": Rate(1.2e4, 4.48e4, 1.5e-3, 3.3e7, 2.56e7),
}
_BYTES_A_SECOND = {1: 1.0, 8: 3e11, 64: 2.5e10}  # of an all-reduce: NVLink within a node, 200 Gbit/s between nodes


@dataclass(frozen=True)
class Cost:
    """Seconds of training (with a teacher's), soft labels and certification, and bytes on each GPU."""

    training: float
    labels: float
    certification: float
    memory: float

    @property
    def total(self) -> float:
        """All of it, one after the other."""
        return self.training + self.labels + self.certification


def step_seconds(config: TrainConfig, gpus: int = 1) -> float:
    """Return the seconds of a training step whose mini-batch is split over GPUs."""
    rate = RATES[config.architecture]
    exchange = 0.0 if gpus == 1 else 2 * 4 * rate.weights / _BYTES_A_SECOND[gpus]
    return max(step_inputs(config, gpus) / rate.training, rate.shortest) * passes(method_of(config)) + exchange


def training_seconds(config: TrainConfig, gpus: int = 1) -> float:
    """Return the seconds of a run on GPUs that share every mini-batch."""
    images = IMAGES[canonical_name(config.dataset)][0]
    return config.epochs * len(plan_epoch(images, config.batch, split_of(config))) * step_seconds(config, gpus)


def run_cost(config: TrainConfig, gpus: int = 1, *, n: int = 100_000, skip: int = 1) -> Cost:
    """Return what a run costs with its teacher and labels, on GPUs that share mini-batches and images."""
    method, rate = method_of(config), RATES[config.architecture]
    train, test = IMAGES[canonical_name(config.dataset)]
    teacher = labels = 0.0
    if method.uses_soft_labels:
        teacher = training_seconds(teacher_config(config), gpus)
        labels = train * config.label_samples / rate.voting / gpus
    votes = -(-test // skip) * n / rate.voting / gpus
    width = 2 if config.precision == "bf16" else 4
    memory = step_inputs(config, gpus) * rate.values * width * (2 if passes(method) >= 6 else 1) + 16 * rate.weights
    return Cost(teacher + training_seconds(config, gpus), labels, votes, memory)


def table_seconds(configs: Sequence[TrainConfig], gpus: int, *, skip: int, n: int = 100_000) -> float:
    """Return the seconds of a table's runs: first the teachers, then the others, and images over all GPUs.

    Soft labels are made once for all runs of a data set and network.
    """
    costs = [run_cost(config, n=n, skip=skip) for config in configs]
    teachers = {_key(config): teacher_config(config) for config in configs if method_of(config).uses_soft_labels}
    labels = {_key(config): cost.labels for config, cost in zip(configs, costs, strict=True)}
    votes = sum(labels.values()) + sum(cost.certification for cost in costs)
    return _spread(list(teachers.values()), gpus) + _spread(configs, gpus) + votes / gpus


def _spread(configs: Sequence[TrainConfig], gpus: int) -> float:
    """Return the seconds of runs that are trained by groups of 1, 8 or 64 GPUs each, whichever is fastest."""
    fastest = float("inf")
    for group in (size for size in GPUS if size <= gpus):
        runs = [training_seconds(config, group) for config in configs]
        fastest = min(fastest, max(max(runs, default=0.0), sum(runs) * group / gpus))
    return fastest


def table_configs(name: str) -> list[TrainConfig]:
    """Return the runs of a table of the paper, every seed."""
    table = paper_tables()[name]
    return [load_recipe(recipe, precision="bf16") for recipe, _ in table.rows for _ in table.seeds]


def _key(config: TrainConfig) -> tuple[str, str, float]:
    return config.dataset, config.architecture, config.label_sigma

"""Prints the tables of docs/scaling.md: `python scripts/scaling.py`; a test compares them with the page."""

from smoothcert.cli.progress import duration
from smoothcert.paper.gpu_cost_model import GPUS, run_cost, table_configs, table_seconds
from smoothcert.training.recipes import load_recipe, paper_tables

_LEFT_OUT = ("cifar10-c", "mnist-c", "linf")


def tables():
    lines = ["| table | runs | 1 GPU | 8 GPUs | 64 GPUs |", "| --- | --- | --- | --- | --- |"]
    for name, table in paper_tables().items():
        if name not in _LEFT_OUT:
            configs = table_configs(name)
            times = [duration(table_seconds(configs, gpus, skip=table.skip)) for gpus in GPUS]
            lines.append(f"| {name} | {len(configs)} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


def imagenet():
    lines = ["| run | 1 GPU | 8 GPUs | 64 GPUs | memory on 1, 8, 64 |", "| --- | --- | --- | --- | --- |"]
    for recipe, _ in paper_tables()["imagenet"].rows:
        costs = [run_cost(load_recipe(recipe, precision="bf16"), gpus, skip=100) for gpus in GPUS]
        memory = ", ".join(f"{cost.memory / 2**30:.1f}" for cost in costs)
        lines.append(f"| {recipe} | {' | '.join(duration(cost.total) for cost in costs)} | {memory} GiB |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(tables())
    print(imagenet())

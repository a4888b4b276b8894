"""A valid call of every documented public function, whose arguments tests replace by others one at a time."""

from pathlib import Path

import numpy as np
import torch

import smoothcert
from smoothcert import bounds, metrics, stopping

JUNK = {
    **{repr(value): value for value in (None, True, "", "x", b"x", -1, 0, 0.5, float("nan"), 1e308, [], {}, (), 1j)},
    **{"object": object(), "function": len, "class": int, "huge": 10**30, "digits": 10**5000, "nested": [[1, [2]]]},
    **{"array of text": np.array(["a"]), "array of objects": np.array([None]), "empty array": np.array([])},
    **{"tensor": torch.zeros(2, 3), "complex tensor": torch.zeros(2, dtype=torch.complex64), "dict": {"a": object()}},
}


def calls(folder):
    """Return name -> (function, keyword or positional arguments) for calls that succeed."""
    data = smoothcert.load_dataset("mnist-mini", "test").subset(range(2))
    checkpoint = smoothcert.load_pretrained("mnist-catrs-0.50")
    smoothed = smoothcert.SmoothedClassifier(checkpoint.model, sigma=0.5, num_classes=10)
    results = Path(folder) / "a.tsv"
    smoothcert.certify_dataset(smoothed, data, results, n0=5, n=20, alpha=0.1)
    smoothcert.save_checkpoint(Path(folder) / "model.safetensors", checkpoint.model)
    image = data.floats([0])[0]
    few = {"n0": 5, "n": 20, "alpha": 0.1, "seed": 0, "indices": [0], "batch": 20, "bound": "one-sided"}
    radii, correct = np.ones(10), np.ones(10, dtype=bool)
    return {
        "SmoothedClassifier": (
            smoothcert.SmoothedClassifier,
            {"model": checkpoint.model, "sigma": 0.5, "num_classes": 10, "precision": "fp32", "form": "plain"},
        ),
        "certify": (smoothed.certify, {"x": image, "n0": 5, "n": 20, "alpha": 0.1, "seed": 0}),
        "predict": (smoothed.predict, {"x": image, "n": 20, "alpha": 0.1, "seed": 0}),
        "certify_dataset": (smoothcert.certify_dataset, {"classifier": smoothed, "data": data, "out": None, **few}),
        "predict_dataset": (
            smoothcert.predict_dataset,
            {"classifier": smoothed, "data": data, "out": None, "n": 20, "alpha": 0.1, "seed": 0, "indices": [0]},
        ),
        "create_model": (smoothcert.create_model, {"name": "lenet", "num_classes": 3, "in_channels": 1}),
        "create_method": (smoothcert.create_method, {"name": "macer", "sigma": 0.5, "options": {}}),
        "list_models": (smoothcert.list_models, {"pattern": "*"}),
        "list_datasets": (smoothcert.list_datasets, {"pattern": "*"}),
        "list_recipes": (smoothcert.list_recipes, {"pattern": "*"}),
        "list_methods": (smoothcert.list_methods, {"pattern": "*"}),
        "list_pretrained": (smoothcert.list_pretrained, {"pattern": "*"}),
        "load_pretrained": (smoothcert.load_pretrained, {"name": "mnist-catrs-0.50"}),
        "load_checkpoint": (smoothcert.load_checkpoint, {"path": Path(folder) / "model.safetensors"}),
        "save_checkpoint": (
            smoothcert.save_checkpoint,
            {"path": Path(folder) / "b.safetensors", "model": checkpoint.model, "sigma": 0.5},
        ),
        "export_checkpoint": (
            smoothcert.export_checkpoint,
            {"checkpoint": checkpoint, "path": Path(folder) / "b.pth"},
        ),
        "load_dataset": (smoothcert.load_dataset, {"name": "mnist-mini", "split": "test", "root": None}),
        "load_recipe": (smoothcert.load_recipe, ("mnist-catrs-0.50",)),
        "select": (smoothcert.select, {"count": 10, "skip": 2, "limit": 9, "shard": (1, 1)}),
        "read_results": (smoothcert.read_results, {"path": results}),
        "read_counts": (smoothcert.read_counts, {"path": results, "num_classes": 10}),
        "TrainConfig": (smoothcert.TrainConfig, {"name": "a", "sigma": 0.5, "epochs": 1, "batch": 2, "seed": 0}),
        "lower_bound": (bounds.lower_bound, {"successes": 9, "trials": 10, "alpha": 0.1}),
        "gaussian_radius": (bounds.gaussian_radius, {"failure": 0.1, "sigma": 0.5}),
        "certify_counts": (
            bounds.certify_counts,
            {"selection": [[2, 8]], "estimation": [[20, 80]], "sigma": 0.5, "alpha": 0.1},
        ),
        "average_certified_radius": (metrics.average_certified_radius, {"radius": radii, "correct": correct}),
        "certified_accuracy": (metrics.certified_accuracy, {"radius": radii, "correct": correct, "at": [0.5]}),
        "TableStop": (stopping.TableStop, {"radii": (0.5,), "skip_wrong": False}),
        "RadiusStop": (stopping.RadiusStop, {"radius": 0.5}),
        "BudgetStop": (stopping.BudgetStop, {"samples": 1000, "radii": (0.5,)}),
    }

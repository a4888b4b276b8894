"""A valid call of every documented public function, whose arguments tests replace by others one at a time."""

import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import torch

import smoothcert
from smoothcert import bounds, metrics, stopping
from smoothcert.philox import Purpose
from smoothcert.results.records import Record

JUNK = {
    **{repr(value): value for value in (None, True, "", "x", b"x", -1, 0, 0.5, float("nan"), 1e308, [], {}, (), 1j)},
    **{"object": object(), "function": len, "class": int, "huge": 10**30, "digits": 10**5000, "nested": [[1, [2]]]},
    **{"array of text": np.array(["a"]), "array of objects": np.array([None]), "empty array": np.array([])},
    **{"NUL": "a\0b", "long": 5000 * "a", "scalar array": np.array(3), "meta tensor": torch.zeros(1, device="meta")},
    **{"tensor": torch.zeros(2, 3), "complex tensor": torch.zeros(2, dtype=torch.complex64), "dict": {"a": object()}},
}

_PAGES = Path(__file__).parents[2] / "docs"
_ENTRY = re.compile(r"^::: smoothcert\.(\w+)$(?:\n    options:)?(?:\n      members: \[(.*)\])?", re.MULTILINE)


def documented():
    """Return the functions and classes, listed methods included, that the API pages document."""
    names = []
    for page in sorted(_PAGES.glob("api-*.md")):
        for name, members in _ENTRY.findall(page.read_text()):
            if name in smoothcert._MODULES:
                names += [f"{name}.{member}" for member in _members(importlib.import_module(f"smoothcert.{name}"))]
            else:
                names += [name, *(f"{name}.{member}" for member in members.split(", ") if member)]
    return names


def _members(module):
    """Return the functions and classes that the page of a module shows; mkdocs.yml leaves out the others."""
    own = inspect.getmembers(module, lambda value: getattr(value, "__module__", "") == module.__name__)
    return [name for name, value in own if callable(value) and not name.startswith(("_", "as_", "check_"))]


def calls(folder):
    """Return name -> (function, keyword arguments) for calls that succeed."""
    samples = _Samples(Path(folder))
    return {**samples.smoothing(), **samples.files(), **samples.training(), **_names(), **_statistics()}


class _Samples:
    """A dataset, a network, a smoothed classifier and a results file, and calls with them."""

    def __init__(self, folder):
        self.folder, self.results = folder, folder / "a.tsv"
        self.data = smoothcert.load_dataset("mnist-mini", "test").subset(range(2))
        self.checkpoint = smoothcert.load_pretrained("mnist-catrs-0.50")
        self.model, self.image = self.checkpoint.model, self.data.floats([0])[0]
        self.smoothed = smoothcert.SmoothedClassifier(self.model, sigma=0.5, num_classes=10)
        smoothcert.certify_dataset(self.smoothed, self.data, self.results, n0=5, n=20, alpha=0.1)
        smoothcert.save_checkpoint(folder / "model.safetensors", self.model)

    def smoothing(self):
        """Return calls that smooth, certify and attack."""
        levels = [smoothcert.SmoothedClassifier(self.model, sigma, 10) for sigma in (0.5, 0.25)]
        cascade, votes = smoothcert.Cascade(levels), torch.zeros(2, dtype=torch.int64)
        addressed = {"seed": 0, "index": 0, "batch": 20}
        predict, certify = {"x": self.image, "n": 20, "alpha": 0.1, **addressed}, {"n0": 5}
        whole = {"classifier": self.smoothed, "data": self.data, "out": None}
        few = {"n": 20, "alpha": 0.1, "seed": 0, "indices": [0], "batch": 20, "model": None}
        shape = {"input_shape": (1, 28, 28), "input_range": (0, 1), "micro_batch": 8, "threads": 1}
        form = {"precision": "fp32", "form": "plain", "noise": "gaussian"}
        rule = stopping.RadiusStop(radius=0.1)
        certificate = {"prediction": 0, "radius": 0.5, "p_lower": 0.9, "counts": votes, "selection_counts": votes}
        return {
            "SmoothedClassifier": (
                smoothcert.SmoothedClassifier,
                {"model": self.model, "sigma": 0.5, "num_classes": 10, **shape, **form},
            ),
            "SmoothedClassifier.certify": (self.smoothed.certify, {**predict, **certify}),
            "SmoothedClassifier.predict": (self.smoothed.predict, predict),
            "SmoothedClassifier.counts": (self.smoothed.counts, {"x": self.image, "n": 20, **addressed}),
            "SmoothedClassifier.forward": (self.smoothed.forward, {"x": self.image, "n": 20}),
            "Certificate": (smoothcert.Certificate, certificate),
            "Ensemble": (smoothcert.Ensemble, {"models": [self.model] * 3, "consensus": 2}),
            "Cascade": (smoothcert.Cascade, {"classifiers": levels, "p0": 0.6, "first_share": 0.8}),
            "Cascade.certify": (cascade.certify, {**predict, **certify}),
            "Cascade.predict": (cascade.predict, {**predict, **certify}),
            "CascadeCertificate": (smoothcert.CascadeCertificate, {"prediction": 3, "radius": 0.5, "level": 0}),
            "adapt_inputs": (smoothcert.adapt_inputs, {"model": self.model, "mean": [0.5], "std": [0.5]}),
            "adapt_inputs, by range": (smoothcert.adapt_inputs, {"model": self.model, "value_range": (0, 255)}),
            "Denoised": (smoothcert.Denoised, {"denoiser": len, "classifier": self.model, "noise_level": 0.5}),
            "OneStepDiffusion": (
                smoothcert.OneStepDiffusion,
                {"predict_noise": len, "alphas_cumprod": [0.9, 0.5, 0.1], "sigma": 0.5},
            ),
            "certify_dataset": (
                smoothcert.certify_dataset,
                {**whole, **few, "n0": 5, "bound": "one-sided"},
            ),
            "predict_dataset": (smoothcert.predict_dataset, {**whole, **few, "purpose": Purpose.PREDICT}),
            "certify_sequentially": (smoothcert.certify_sequentially, {**whole, **few, "n0": 5, "n": 50, "rule": rule}),
            "smoothed_gradient": (
                smoothcert.smoothed_gradient,
                {"classifier": self.smoothed, "x": self.image[None], "classes": votes[:1], "num_noises": 2, "seed": 0},
            ),
        }

    def files(self):
        """Return calls that read and write files, and make datasets and models."""
        images = {"images": self.data.images, "labels": self.data.labels, "classes": self.data.classes}
        return {
            "create_model": (
                smoothcert.create_model,
                {"name": "lenet", "num_classes": 3, "in_channels": 1, "mean": (0.5,), "std": (0.5,)},
            ),
            "register_model": (smoothcert.register_model, {"name": "mine", "factory": lambda: self.model}),
            "load_pretrained": (smoothcert.load_pretrained, {"name": "mnist-catrs-0.50"}),
            "load_checkpoint": (
                smoothcert.load_checkpoint,
                {"path": self.folder / "model.safetensors", "model": None, "architecture": None, "normalization": None},
            ),
            "save_checkpoint": (
                smoothcert.save_checkpoint,
                {"path": self.folder / "b.safetensors", "model": self.model, "sigma": 0.5},
            ),
            "export_checkpoint": (
                smoothcert.export_checkpoint,
                {"checkpoint": self.checkpoint, "path": self.folder / "b.pth"},
            ),
            "load_dataset": (
                smoothcert.load_dataset,
                {"name": "mnist-mini", "split": "test", "data_dir": None, "skip_broken": False, "root": None},
            ),
            "register_dataset": (smoothcert.register_dataset, {"name": "mine", "loader": lambda split: self.data}),
            "select": (smoothcert.select, {"count": 10, "skip": 2, "limit": 9, "shard": (1, 1)}),
            "ImageData": (
                smoothcert.ImageData,
                {"name": "a", "split": "test", **images, "mean": (0.5,), "std": (0.5,), "severities": 1},
            ),
            "read_results": (smoothcert.read_results, {"path": self.results}),
            "read_counts": (smoothcert.read_counts, {"path": self.results, "num_classes": 10}),
            "to_frame": (smoothcert.to_frame, {"results": [Record(7, 1, 1, 0.5, 2.0, [0, 10], [2, 98])]}),
        }

    def training(self):
        """Return calls that train tiny networks; a finished run is only loaded again."""
        inputs, labels, runs = torch.rand(8, 3), [0, 1] * 4, self.folder / "runs"
        pixels = {f"{split}_images": np.zeros((2, 28, 28), np.uint8) + i for i, split in enumerate(("train", "test"))}
        np.savez(self.folder / "tiny.npz", train_labels=np.arange(2), test_labels=np.arange(2), **pixels)
        recipe = {"dataset": str(self.folder / "tiny.npz"), "sigma": 0.5, "epochs": 1, "batch": 2, "seed": 0}
        config = smoothcert.TrainConfig(name="recipe", **recipe)
        common = {"runs": runs, "device": "cpu", "compile": None, "workers": None, "time_limit": None, "data_dir": None}
        fields = {"epochs": 1, "batch": 8, "optimizer": "sgd", "learning_rate": 0.1, "schedule": "cosine"}
        others = {"warmup_epochs": 0.0, "weight_decay": 0.0, "augmentation": "none", "precision": "fp32", "seed": 0}
        data = {"train_data": (inputs, labels), "test_data": (inputs, labels), "validation": 0.0}
        method, own = {"sigma": 0.5, "method": "gaussian", "options": None}, {"name": "own", "init": ""}
        return {
            "train": (
                smoothcert.train,
                {"model": _network, **data, **method, **own, **fields, **others, **common, "on_metrics": None},
            ),
            "TrainConfig": (smoothcert.TrainConfig, {"name": "a", **recipe, "options": {}}),
            "TrainConfig.learning_rate_at": (config.learning_rate_at, {"epoch": 0, "progress": 0.5}),
            "load_recipe": (
                lambda recipe, **overrides: smoothcert.load_recipe(recipe, **overrides),
                {"recipe": "mnist-catrs-0.50", "epochs": 3, "options": {}},
            ),
            "train_run": (smoothcert.train_run, {"config": config, **common}),
            "train_runs": (smoothcert.train_runs, {"configs": [config], **common, "data": None, "factory": None}),
            "create_method": (smoothcert.create_method, {"name": "macer", "sigma": 0.5, "options": {}}),
            "register_method": (
                smoothcert.register_method,
                {"method": type(smoothcert.create_method("macer", 0.5))},
            ),
            "Method": (type(smoothcert.create_method("macer", 0.5)), {"sigma": 0.5}),
            "StepOutput": (
                lambda **fields: smoothcert.StepOutput(**fields).watched(),
                {"loss": torch.tensor(1.0), "parts": {"a": torch.tensor(1.0)}},
            ),
            "StepDraws": (smoothcert.StepDraws, {"seed": 0, "step": 3, "share": None}),
        }


def _network():
    return torch.nn.Linear(3, 2)


def _names():
    listing = ("models", "datasets", "recipes", "methods", "pretrained")
    return {f"list_{kind}": (getattr(smoothcert, f"list_{kind}"), {"pattern": "*"}) for kind in listing}


def _statistics():
    radii, correct = np.ones(10), np.ones(10, dtype=bool)
    certified, votes = {"radius": radii, "correct": correct}, {"successes": 9, "trials": 10}
    bootstrap, triple = {"confidence": 0.9, "resamples": 10, "seed": 0}, (np.arange(10), radii, correct)
    sampled = {
        "bounds.failure_upper_bound": {**votes, "alpha": 0.1},
        "bounds.lower_bound": {**votes, "alpha": 0.1},
        "bounds.gaussian_radius": {"failure": 0.1, "sigma": 0.5},
        "bounds.certify_counts": {"selection": [[2, 8]], "estimation": [[20, 80]], "sigma": 0.5, "alpha": 0.1},
        "bounds.predict_counts": {"counts": [20, 1], "alpha": 0.1},
        "bounds.tie_p_value": votes,
        "bounds.smallest_sample": {"alpha": 0.1},
        "bounds.largest_radius": {"sigma": 0.5, "n": 10, "alpha": 0.1},
        "metrics.robust_radius": certified,
        "metrics.average_certified_radius": certified,
        "metrics.certified_accuracy": {**certified, "at": [0.5]},
        "metrics.linf_accuracy": {**certified, "at": [0.5], "dimensions": 4},
        "metrics.abstention_rate": {"predict": [3, -1]},
        "metrics.high_probability_accuracy": {"accuracy": 0.5, "images": 10, "alpha": 0.1, "rho": 0.1},
        "metrics.Estimate": {"value": 0.5, "standard_error": 0.1, "low": 0.3, "high": 0.7},
        "metrics.estimate": {"values": radii, **bootstrap},
        "metrics.cluster_estimate": {"totals": [radii], "counts": [radii], **bootstrap},
        "metrics.paired_difference": {"first": triple, "second": triple},
        "metrics.radius_grid": {"dataset": "imagenet"},
        "stopping.TableStop": {"radii": (0.5,), "skip_wrong": False},
        "stopping.RadiusStop": {"radius": 0.5, "skip_wrong": False},
        "stopping.BudgetStop": {"samples": 1000, "images": 5, "shard": (1, 2), "radii": (0.5,)},
    }
    modules = {"bounds": bounds, "metrics": metrics, "stopping": stopping}
    return {name: (getattr(modules[name.split(".")[0]], name.split(".")[1]), given) for name, given in sampled.items()}

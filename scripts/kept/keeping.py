"""Copy finished runs of the recipes from a folder of runs into `results/`."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

from kept.shelf import SPARSER, WITH_WEIGHTS, clean_folders, every, network_of
from kept.verifying import verify_rows
from smoothcert.report.corrupted.files import is_corrupted
from smoothcert.results.naming import certificates_in, counts_path, sidecar_path
from smoothcert.results.reader import read_results
from smoothcert.runtime.atomic_files import file_hash, write_text
from smoothcert.runtime.bounded_files import read_text
from smoothcert.statistics.metrics import average_certified_radius
from smoothcert.training.run_folder import RunFolder


def keep_runs(place, jobs, folder, zoo):
    """Copy finished runs into a table's folder, and the weights of CAT-RS into the package.

    Raises if a run's configuration differs from its recipe, if certificates are for another network or protocol, or if
    they do not follow from their votes. A run that another table has is not kept twice, and neither are two networks
    with the same name. Certificates on corrupted images are kept together with the same network's certificates on the
    clean images, if the run has them.
    """
    for job in jobs:
        run = RunFolder(place.runs / job.config.name)
        config = run.read_config()
        if config is None:
            continue
        # A recipe fixes neither the training precision nor the teacher's folder.
        job = replace(job, config=replace(job.config, precision=config.precision, teacher=config.teacher))
        paths = _finished(place, job, (job.skip, *SPARSER.get(folder.name, ())))
        obstacle = _obstacle(job, run, folder, zoo, paths) if paths else "it is not finished"
        if obstacle:
            print(f"left out {run.path}: {obstacle}")
            continue
        target = folder / job.config.name
        _copy(run, job, [*paths, *_clean_paths(place, job, folder.parent, every(paths[0]))], target)
        if job.config.method in WITH_WEIGHTS:
            _keep_weights(run.model, zoo / f"{job.config.name}.safetensors", None if job.data else paths[0])
        print(f"kept {_shown(target)}")


def _finished(place, job, skips):
    """Return a job's checked results files for the first of `skips` that is finished."""
    variants = [replace(job, skip=skip) for skip in skips]
    paths = next((place.results_paths(variant) for variant in variants if place.progress(variant).finished), [])
    for path in paths:
        verify_rows(path)
    return paths


def _obstacle(job, run, folder, zoo, paths):
    """Return the reason why a finished run is not kept, or an empty string.

    Certificates on corrupted images may be for a retrained network, unless the first one is bundled.
    """
    network, weights = file_hash(run.model), zoo / f"{job.config.name}.safetensors"
    if job.data:
        other = weights.is_file() and file_hash(weights) != network
        return "the package has another network of that name, whose certificates are kept" if other else ""
    others = [path for path in clean_folders(folder.parent, job.config.name) if path.parent != folder]
    for other in others:
        if {network_of(path) for path in certificates_in(other)} - {network}:
            return f"{_shown(other)} is another run"
    for other in others:
        if any((other / f"{path.name}.gz").is_file() for path in paths):
            return f"{_shown(other)} is the same run"
    return ""


def _clean_paths(place, job, results, skip):
    """Return a run's certificates on clean images that no table has yet."""
    if not job.data or all(is_corrupted(path) for path in certificates_in(place.runs / job.config.name)):
        return []
    paths = _finished(place, replace(job, data=""), (skip, 1))
    kept = [other / f"{path.name}.gz" for path in paths for other in clean_folders(results, job.config.name)]
    texts = {read_text(file) for file in kept if file.is_file()}
    return [path for path in paths if read_text(path) not in texts]


def _copy(run, job, paths, target):
    target.mkdir(parents=True, exist_ok=True)
    for file in target.glob("certify-*") if job.data else ():  # of an earlier network, or on fewer images
        file.unlink()
    for file in (run.config, run.metrics, run.segments):
        if file.is_file():  # the earliest runs have no segments.json
            shutil.copyfile(file, target / file.name)
    for path in paths:
        shutil.copyfile(sidecar_path(path), target / sidecar_path(path).name)
        for file in (path, counts_path(path)):
            packed = gzip.compress(file.read_bytes(), compresslevel=9, mtime=0)
            (target / f"{file.name}.gz").write_bytes(packed)


def _keep_weights(model, target, certificates):
    """Copy a network into the package and list it with its hash and, if given, the ACR of its certificates."""
    shutil.copyfile(model, target)
    listed = target.with_name("networks.json")
    known = json.loads(listed.read_text()) if listed.is_file() else {}
    entry = known.get(target.stem, {}) | {"sha256": file_hash(target)}
    if certificates:
        results = read_results(certificates)
        entry |= {"acr": round(average_certified_radius(results), 4), "images": len(results)}
    known[target.stem] = entry
    write_text(listed, json.dumps(dict(sorted(known.items())), indent=2) + "\n")


def _shown(folder):
    """Return a kept run's folder relative to the repository, such as results/mnist/mnist-catrs-0.25."""
    return Path(*folder.parts[-3:])

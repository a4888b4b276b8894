"""Checks of the kept results: rows against their votes, and votes against the kept networks."""

import numpy as np

import smoothcert
from kept.shelf import WITH_WEIGHTS, certificates, has_corrupted_images, network_of, settings_of
from smoothcert.dataset_names import classes_of
from smoothcert.errors import SmoothcertError
from smoothcert.results.image_lists import images_of
from smoothcert.results.reader import read_results, read_vote_table
from smoothcert.statistics.bounds import ABSTAIN, certify_counts, gaussian_radius, lower_bound

_OTHER_PRECISION = {"bf16": "fp32", "fp32": "bf16"}  # a CPU has no TF32
_LEAST_MOVED = 10  # votes by which two precisions must differ before they can be told apart


class WrongResultError(SmoothcertError):
    """A kept result is wrong."""


class MissingDataError(SmoothcertError):
    """The images that a network was certified on are not available."""


def check(holds, message):
    """Raise WrongResultError unless `holds`; unlike an assertion, also under `python -O`."""
    if not holds:
        raise WrongResultError(message)


def verify_all(folder, images, n, replayed=0):
    """Raise if a row does not follow from its votes, or if a kept network does not reproduce its votes.

    Every kept network votes on `images` images with `n` fresh noise samples each. For `replayed` images, the selection
    votes are repeated with the same noise, to check the precision in which the votes were counted.
    """
    skipped, networks, paths = set(), {}, certificates(folder)
    check(paths, f"{folder} holds no certificates")
    for path in paths:
        corrupted = has_corrupted_images(path.parent.parent.name)  # these networks may have been trained again
        known = networks.setdefault((path.parent.name, corrupted), network_of(path))
        check(network_of(path) == known, f"{path}: another network of that name is kept")
        results, votes = verify_rows(path)
        outcome = "networks not run"
        if images or replayed:
            try:
                outcome = vote_again(path.parent, results, votes, images, n, replayed)
            except MissingDataError as error:
                outcome = "images not found"
                skipped.add(str(error))
        print(f"{path.relative_to(folder)}: {len(results):,} rows follow from their votes; {outcome}", flush=True)
    if skipped:
        raise SmoothcertError(f"Some networks were not run again: {' '.join(sorted(skipped))}")


def verify_rows(path):
    """Recompute every row from its votes; return the rows, and the votes of selection and estimation."""
    settings, results = settings_of(path), read_results(path)
    table = read_vote_table(path)
    chosen = table.idx
    check(np.array_equal(chosen, results.idx), f"{path}: rows and votes are not of the same images")
    asked = images_of(settings["images"])
    check(sorted(chosen) == sorted(asked), f"{path}: not the images that were to be certified")
    votes = np.array(table.dense(0, len(table), classes_of(settings["data"]["name"]) or 10))
    drawn = [np.unique(stage.sum(axis=1)).tolist() for stage in votes]
    check(drawn == [[settings["n0"]], [settings["n"]]], f"{path}: not as many votes as noise samples")
    predict, radius, _ = certify_counts(*votes, settings["sigma"], settings["alpha"])
    check(np.array_equal(predict, results.predict), f"{path}: a class does not follow from the votes")
    check(np.array_equal(radius, results.radius), f"{path}: a radius does not follow from the votes")
    check(np.array_equal(predict == results.label, results.correct), f"{path}: column `correct` contradicts the label")
    return results, votes


def vote_again(run, results, votes, images, n, replayed=0):
    """Run a kept network on the CPU and compare its votes with the stored ones; return a description."""
    settings = results.about["settings"]
    if run.name not in smoothcert.list_pretrained():
        check(settings["model"].get("method") not in WITH_WEIGHTS, f"{run}: its network is not kept")
        return "no weights kept"
    checkpoint = smoothcert.load_pretrained(run.name)
    certified = settings["model"]["sha256"]
    check(checkpoint.sha256 == certified, f"{run}: these are not the weights that were certified")
    name, corrupted = settings["data"]["name"], "/" in settings["data"]["name"]
    try:
        data = smoothcert.load_dataset(name, "test")
    except SmoothcertError as error:
        if corrupted:  # the corruptions can only be generated anew, which gives other images
            return f"network not run ({name} is not available)"
        raise MissingDataError(str(error)) from error
    same = data.fingerprint == settings["data"]["sha256"]
    if corrupted and not same:
        return f"network not run (another draw of {name})"
    check(same, f"{run}: these are not the images that were certified")
    check(np.array_equal(data.labels[results.idx], results.label), f"{run}: a label is not the image's")
    outcomes = []
    if images:
        outcomes.append(vote_on_fresh_noise(run, checkpoint.model, data, results, votes[1], images, n))
    if replayed:
        outcomes.append(replay_selection(run, checkpoint.model, data, results, votes, replayed))
    return "; ".join(outcomes)


def vote_on_fresh_noise(run, model, data, results, votes, images, n):
    """Check that votes on fresh noise, in float32, do not contradict the certificates of a few images."""
    settings = results.about["settings"]
    smoothed = smoothcert.SmoothedClassifier(model, settings["sigma"], model.num_classes)
    images = min(images, len(results))
    for row in np.linspace(0, len(results) - 1, images).round().astype(int):
        image = int(results.idx[row])
        fresh = smoothed.counts(data.floats([image])[0], n, seed=1, index=image).numpy()
        certificate = int(results.predict[row]), float(results.radius[row])
        check_votes(f"{run}: image {image}", fresh, votes[row], *certificate, settings["sigma"])
    return f"{images} images agree on fresh noise"


def replay_selection(run, model, data, results, votes, images):
    """Check the precision of the votes: repeat the selection with the same noise and count the votes that differ.

    In the same precision, votes differ only through the order of summation; in the other precision, many more votes
    differ where the majority is small. So the images with the smallest majorities are replayed, in both precisions.
    Majorities are those of the estimation votes, which are not used otherwise.
    """
    settings = results.about["settings"]
    recorded = settings["precision"]
    if recorded not in _OTHER_PRECISION:
        return f"precision not checked (a CPU has no {recorded})"
    rows = np.sort(np.argsort(votes[1].max(axis=1), kind="stable")[:images])
    moved = {}
    for precision in (recorded, _OTHER_PRECISION[recorded]):
        smoothed = smoothcert.SmoothedClassifier(
            model, settings["sigma"], model.num_classes, precision=precision, form="folded"
        )
        chosen = results.idx[rows].tolist()
        inputs, edges = data.floats(chosen), (0, settings["n0"])
        again = smoothed.count_stages(inputs, edges, seed=settings["seed"], index=chosen).numpy()[:, 0]
        moved[precision] = int(np.abs(again - votes[0][rows]).sum()) // 2
    return check_precision(run, moved, recorded, settings["n0"] * len(rows))


def check_precision(run, moved, recorded, total):
    """Raise unless the stored votes match the recorded precision, or both precisions too well to tell them apart."""
    other = _OTHER_PRECISION[recorded]
    counted = f"{moved[recorded]} of {total:,} replayed votes differ in {recorded}, {moved[other]} in {other}"
    check(2 * moved[recorded] <= max(moved[other], _LEAST_MOVED), f"{run}: votes are not of {recorded}: {counted}")
    return counted if moved[other] >= _LEAST_MOVED else f"{counted}: too few to tell the precisions apart"


def check_votes(image, fresh, votes, predict, radius, sigma):
    """Raise if fresh votes contradict the votes, the class or the radius of a certificate."""
    (low, high), (least, most) = interval(fresh), interval(votes)
    check(((low <= most) & (least <= high)).all(), f"{image}: fresh votes contradict the stored ones")
    if predict != ABSTAIN:
        top = int(fresh.argmax())
        check(low[top] <= 0.5 or predict == top, f"{image} is another class")
        check(radius <= gaussian_radius(1 - high[predict], sigma), f"{image} has another radius")


def interval(votes):
    """Return bounds on the probability of every class, each of which fails with probability 1e-6."""
    n = votes.sum()
    return lower_bound(votes, n, 1e-6), 1 - lower_bound(n - votes, n, 1e-6)

"""Whether what is kept holds: every row follows from its votes, and the kept networks vote again as they did."""

import numpy as np

import smoothcert
from kept.shelf import WITH_WEIGHTS, certificates, has_corrupted_images, network_of, settings_of
from smoothcert.dataset_names import classes_of
from smoothcert.errors import SmoothcertError
from smoothcert.results.merge import images_of
from smoothcert.results.reader import read_results, read_votes
from smoothcert.statistics.bounds import ABSTAIN, certify_counts, gaussian_radius, lower_bound


class WrongResultError(SmoothcertError):
    """Something that is kept does not hold."""


class MissingDataError(SmoothcertError):
    """The images that a network was certified on are not here."""


def check(holds, message):
    """Fail with a message; an assertion would be left out under `python -O`."""
    if not holds:
        raise WrongResultError(message)


def verify_all(folder, images, n):
    """Fail if a stored row does not follow from its votes, or a kept network does not give its certificates again."""
    skipped, networks, paths = set(), {}, certificates(folder)
    check(paths, f"{folder} holds no certificates")
    for path in paths:
        corrupted = has_corrupted_images(path.parent.parent.name)  # these may be of one that was trained again
        known = networks.setdefault((path.parent.name, corrupted), network_of(path))
        check(network_of(path) == known, f"{path}: another network of that name is kept")
        results, votes = verify_rows(path)
        again = "not certified again"
        if images:
            try:
                again = certify_again(path.parent, results, votes, images, n)
            except MissingDataError as error:
                skipped.add(str(error))
        print(f"{path.relative_to(folder)}: {len(results):,} rows follow from their votes; {again}", flush=True)
    if skipped:
        raise SmoothcertError(f"Networks were not certified again: {' '.join(sorted(skipped))}")


def verify_rows(path):
    """Compute every row again from its votes; return the rows, and the votes that the radii are of."""
    settings, results = settings_of(path), read_results(path)
    voted = read_votes(path, classes_of(settings["data"]["name"]) or 10)
    chosen = [image for image, _ in voted]
    check(np.array_equal(chosen, results.idx), f"{path}: rows and votes are not of the same images")
    asked = images_of(settings["images"])
    check(sorted(chosen) == sorted(asked), f"{path}: not the images that were to be certified")
    votes = np.array([stages for _, stages in voted]).swapaxes(0, 1)
    drawn = [np.unique(stage.sum(axis=1)).tolist() for stage in votes]
    check(drawn == [[settings["n0"]], [settings["n"]]], f"{path}: not as many votes as there were noises")
    predict, radius, _ = certify_counts(*votes, settings["sigma"], settings["alpha"])
    check(np.array_equal(predict, results.predict), f"{path}: a class does not follow from the votes")
    check(np.array_equal(radius, results.radius), f"{path}: a radius does not follow from the votes")
    right = predict == results.label
    check(np.array_equal(right, results.correct), f"{path}: a row is right by its label, or is not")
    return results, votes[1]


def certify_again(run, results, votes, images, n):
    """Certify a few images on the CPU in float32: fresh noise must not contradict the stored votes."""
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
        if corrupted:  # and another draw of the corruptions, which is what can be had, would not do
            return f"not certified again ({name} is not here)"
        raise MissingDataError(str(error)) from error
    same = data.fingerprint == settings["data"]["sha256"]
    if corrupted and not same:  # another draw of the corruptions, or the published one
        return f"not certified again ({name} here is another draw)"
    check(same, f"{run}: these are not the images that were certified")
    check(np.array_equal(data.labels[results.idx], results.label), f"{run}: a label is not the image's")
    smoothed = smoothcert.SmoothedClassifier(checkpoint.model, settings["sigma"], checkpoint.model.num_classes)
    images = min(images, len(results))
    for row in np.linspace(0, len(results) - 1, images).round().astype(int):
        image = int(results.idx[row])
        fresh = smoothed.counts(data.floats([image])[0], n, seed=1, index=image).numpy()
        certificate = int(results.predict[row]), float(results.radius[row])
        check_votes(f"{run}: image {image}", fresh, votes[row], *certificate, settings["sigma"])
    return f"{images} images vote alike on the CPU"


def check_votes(image, fresh, votes, predict, radius, sigma):
    """Fail if fresh votes contradict those of a certificate, its class, or its radius."""
    (low, high), (least, most) = interval(fresh), interval(votes)
    check(((low <= most) & (least <= high)).all(), f"{image} votes otherwise")
    if predict != ABSTAIN:
        top = int(fresh.argmax())
        check(low[top] <= 0.5 or predict == top, f"{image} is another class")
        check(radius <= gaussian_radius(1 - high[predict], sigma), f"{image} has another radius")


def interval(votes, doubt=1e-6):
    """Return bounds of every class's probability that fail, each, once in a million times."""
    n = votes.sum()
    return lower_bound(votes, n, doubt), 1 - lower_bound(n - votes, n, doubt)

"""What runs cost in time and memory, beside what the published repositories' logs say."""

from smoothcert.training.config import read_config
from smoothcert.training.run_folder import RunFolder

# Seconds of an epoch, and of an image's certificate, in the logs and results that the published repositories hand out;
# of LeNet on MNIST and Fashion-MNIST, on the GPUs they had.
_PUBLISHED_EPOCHS = {"gaussian": (2.3, 3.6), "catrs": (27, 27), "smoothadv": (67, 77), "smoothmix": (37, 75)}
_PUBLISHED_IMAGE = (0.18, 0.36)
_TITLES = [
    "| run | GPU | trained in | training, s | published, s | peak memory, GiB | certification, s | published, s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: |",
]
_PUBLISHED = (
    "Runs that were trained together share their time. Published: what the logs and results that the published "
    "repositories hand out say of an epoch and of an image, on their GPUs, times as many."
)


def cost_lines(runs):
    """Return a table of what runs cost, each told by its results file and what this holds."""
    return [*_TITLES, *(cost_line(path.parent, results) for path, results in runs), "", _PUBLISHED]


def cost_line(folder, results):
    """Return what a run cost; runs that were trained together share their time and memory."""
    run, config, segments = RunFolder(folder), read_config(folder / "config.toml"), results.about["segments"]
    training = sum(row["seconds"] for row in run.read_metrics())
    memory = max((segment.get("peak_memory", 0) for segment in run.read_segments()), default=0)
    spent = sum(segment.get("seconds", 0.0) for segment in segments)
    small = config.architecture == "lenet"
    epoch, image = (_PUBLISHED_EPOCHS.get(config.method), _PUBLISHED_IMAGE) if small else (None, None)
    cells = [folder.name, segments[-1]["device"], config.precision, f"{training:,.0f}", span(epoch, config.epochs)]
    cells += [f"{memory / 2**30:.1f}" if memory else "", f"{spent:,.0f}", span(image, len(results))]
    return f"| {' | '.join(cells)} |"


def span(seconds, times):
    """Return how long something takes so many times, from the shortest to the longest; nothing where it is unknown."""
    if seconds is None:
        return ""
    low, high = (f"{one * times:,.0f}" for one in seconds)
    return low if low == high else f"{low} to {high}"

"""Keep the project's own results, write RESULTS.md from them, and check them without a GPU.

python scripts/results.py keep RUNS TABLE...     copy finished runs of these tables from a folder of runs
python scripts/results.py write                  make RESULTS.md anew
python scripts/results.py verify [--images 3]    recompute every row and RESULTS.md, and certify a few images again
"""

import argparse
import dataclasses
import gzip
import itertools
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import torch

import smoothcert
from smoothcert.bounds import ABSTAIN, certify_counts, gaussian_radius, lower_bound
from smoothcert.config import read_config
from smoothcert.metrics import average_certified_radius, paired_difference
from smoothcert.names import classes_of
from smoothcert.pretrained import FOLDER as ZOO
from smoothcert.recipes import paper_tables
from smoothcert.report.corrupted_files import is_corrupted
from smoothcert.report.corrupted_networks import read_corrupted
from smoothcert.report.corruptions import KINDS, corruption_sheets, paper_beside, summarize
from smoothcert.report.formats import to_markdown
from smoothcert.report.paper import METHODS, paper_row
from smoothcert.report.seeds import over_seeds, seed_annex
from smoothcert.report.table import build_table
from smoothcert.reproduction import Workplace, find_table, linf_of, list_jobs, row_of
from smoothcert.results import counts_path, read_counts, read_results, read_sidecar, read_text, sidecar_path
from smoothcert.runs import RunFolder
from smoothcert.storage import file_hash, write_text

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
WITH_WEIGHTS = ("catrs",)
SPARSER = {"mnist-c": (10,)}  # every how many-th image is enough for a row; all for all would be 10^11 samples


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    keep = verbs.add_parser("keep")
    keep.add_argument("runs", type=Path)
    keep.add_argument("tables", nargs="+")
    verbs.add_parser("write")
    verify = verbs.add_parser("verify")
    verify.add_argument("--images", type=int, default=3, help="of each kept network, certified again (default: 3)")
    verify.add_argument("--n", type=int, default=10_000, help="noises for that (default: 10,000)")
    args = parser.parse_args()
    try:
        if args.verb == "keep":
            for table in args.tables:
                keep_table(Workplace(args.runs), table)
        elif args.verb == "write":
            (ROOT / "RESULTS.md").write_text(results_page(RESULTS))
        else:
            verify_page(RESULTS, ROOT / "RESULTS.md")
            verify_all(RESULTS, args.images, args.n)
    except (smoothcert.SmoothcertError, OSError) as error:
        raise SystemExit(str(error)) from error


def keep_table(place, table):
    """Copy what can be checked of a table's finished runs; weights, of CAT-RS alone, go into the package.

    A run of another configuration than its recipe's is refused, and so are certificates of another network or protocol,
    or that do not follow from their votes. What another table has is not kept twice, nor are two networks of one name.
    With certificates on corrupted images go those of the same network on the images before, where the run has them.
    """
    for job in list_jobs(table):
        source, target = place.runs / job.config.name, RESULTS / table / job.config.name
        config = RunFolder(source).read_config()
        if config is None:
            continue
        # In which precision a run was trained, and where its teacher lay, its recipe does not fix.
        free = {"precision": config.precision, "teacher": config.teacher}
        job = dataclasses.replace(job, config=dataclasses.replace(job.config, **free))
        ways = [dataclasses.replace(job, skip=skip) for skip in (job.skip, *SPARSER.get(table, ()))]
        paths = next((place.results_paths(way) for way in ways if place.progress(way).finished), None)
        if paths is None:
            print(f"left out {source}: it is not finished")
            continue
        for path in paths:
            verify_rows(path, read_results(path))
        if obstacle := why_not(job, source, target, paths):
            print(f"left out {source}: {obstacle}")
            continue
        paths += clean_paths(place, dataclasses.replace(job, skip=every(paths[0])))
        target.mkdir(parents=True, exist_ok=True)
        for file in target.glob("certify-*") if job.data else ():  # on fewer images, say, or of an earlier network
            file.unlink()
        for name in ("config.toml", "metrics.jsonl", "segments.json"):
            if (source / name).is_file():  # runs of the first days have no segments
                shutil.copyfile(source / name, target / name)
        if job.config.method in WITH_WEIGHTS:
            shutil.copyfile(source / "model.safetensors", ZOO / f"{job.config.name}.safetensors")
        for path in paths:
            shutil.copyfile(sidecar_path(path), target / sidecar_path(path).name)
            for file in (path, counts_path(path)):
                packed = gzip.compress(file.read_bytes(), compresslevel=9, mtime=0)
                (target / f"{file.name}.gz").write_bytes(packed)
        print(f"kept {target.relative_to(ROOT)}")
    known = {path.stem: file_hash(path) for path in sorted(ZOO.glob("*.safetensors"))}
    write_text(ZOO / "checksums.json", json.dumps(known, indent=2) + "\n")


def why_not(job, source, target, paths):
    """Return why a finished run is not to be kept, or nothing: another table has it, or another network of that name.

    Certificates on corrupted images may be of a network that was trained again, unless the package has the first one.
    """
    network, weights = file_hash(source / "model.safetensors"), ZOO / f"{job.config.name}.safetensors"
    if job.data:
        other = weights.is_file() and file_hash(weights) != network
        return "the package has another network of that name, whose certificates are kept" if other else ""
    others = [folder for folder in clean_folders(job.config.name) if folder != target]
    strange = [folder for folder in others if networks_of(folder) - {network}]
    again = [folder for folder in others if any((folder / f"{path.name}.gz").is_file() for path in paths)]
    for folder, which in [*((folder, "another") for folder in strange), *((folder, "the same") for folder in again)]:
        return f"{folder.relative_to(ROOT)} is {which} run"
    return ""


def clean_folders(run):
    """Return where a run is kept as a row of a table; what lies beside corrupted images is none."""
    return [folder for folder in sorted(RESULTS.glob(f"*/{run}")) if not has_corrupted_images(folder.parent.name)]


def has_corrupted_images(table):
    """Whether a table of the paper is of corrupted images."""
    return table in paper_tables() and bool(find_table(table).data)


def clean_paths(place, job):
    """Return a run's certificates of the images before they were corrupted, where no table has them already."""
    if not job.data or all(is_corrupted(path) for path in certificates(place.runs / job.config.name)):
        return []
    ways = [dataclasses.replace(job, data="", skip=skip) for skip in (job.skip, 1)]
    paths = next((place.results_paths(way) for way in ways if place.progress(way).finished), [])
    for path in paths:
        verify_rows(path, read_results(path))
        kept = [folder / f"{path.name}.gz" for folder in clean_folders(job.config.name)]
        if any(file.is_file() and read_text(file) == read_text(path) for file in kept):
            return []
    return paths


def certificates(folder):
    """Return the results files below a folder."""
    files = [*folder.glob("**/certify-*.tsv"), *folder.glob("**/certify-*.tsv.gz")]
    return sorted(path for path in files if ".counts." not in path.name)


def networks_of(folder):
    """Return the hashes of the networks that a kept run's certificates are of: one, if all is well."""
    sidecars = [read_sidecar(sidecar_path(path)) for path in certificates(folder)]
    return {about["settings"]["model"]["sha256"] for about in sidecars}


def shown_tables(folder):
    """Return the tables that something is kept of, and those whose runs are all there, kept with other tables."""
    kept = {path.name for path in folder.iterdir() if path.is_dir()}
    clean = [name for name, table in paper_tables().items() if not table.data]
    return sorted(kept.union(name for name in clean if len(kept_rows(folder, name)) == len(list_jobs(name))))


def kept_rows(folder, table):
    """Return a table's jobs and their certificates, in whichever table's folder a run that several have is kept.

    Of a table over seeds, what was trained once is left out: it says nothing of the spread.
    """
    plain = [path for path in certificates(folder) if not has_corrupted_images(path.parent.parent.name)]
    kept = {(path.parent.name, every(path)): path for path in plain}
    jobs = list_jobs(table)
    rows = [(job, kept[job.config.name, job.skip]) for job in jobs if (job.config.name, job.skip) in kept]
    seeds = Counter(recipe_of(job) for job, _ in rows)
    return [(job, path) for job, path in rows if seeds[recipe_of(job)] > 1 or len(find_table(table).seeds) == 1]


def every(path):
    """Return of how many images one was certified, by the name of a results file."""
    told = re.search(r"-skip(\d+)", path.name)
    return int(told[1]) if told else 1


def recipe_of(job):
    """Return the name of a run without its seed."""
    return job.config.name.removesuffix(f"-seed{job.config.seed}")


def results_page(folder):
    """Return the text of RESULTS.md."""
    lines = [
        "# Results",
        "",
        "Made by `python scripts/results.py write` from the files in `results/`; `make verify-results` checks them.",
        "",
    ]
    for table in shown_tables(folder):
        if find_table(table).data:
            lines += [f"## {find_table(table).title}", "", corruption_tables(folder / table), ""]
            continue
        rows = kept_rows(folder, table)
        entries = [row_of(table, job, read_results(path)) for job, path in rows]
        if entries:
            built = build_table(entries, paper=True, linf=linf_of(table))
            lines += [f"## {find_table(table).title}", "", to_markdown(built), ""]
            if linf_of(table):  # what else there is to say of its runs, their own table says
                continue
            if len(find_table(table).seeds) > 1:
                lines += [to_markdown(seed_annex(over_seeds(built.rows)).sheet), ""]
            elif find_table(table).paper:
                lines += [*distances(built.rows), "", *notes(folder / table), *ranking(built), ""]
            lines += COSTS
            lines += [cost_line(path) for _, path in rows] + ["", PUBLISHED, ""]
    return "\n".join(lines).rstrip() + "\n"


def corruption_tables(folder):
    """Return the tables of the runs on corrupted images; those on clean ones are kept with their own table."""
    clean = [path for path in certificates(folder.parent) if not is_corrupted(path)]
    found = read_corrupted([*certificates(folder), *clean])
    sheets = [to_markdown(sheet) for sheet in corruption_sheets(found, paper=True)]
    return "\n".join(["\n".join([*means(found), "", BY_CORRUPTION, ""]), *sheets])


BY_CORRUPTION = (
    "By corruption; +- is the standard error of the mean, and `clean` the same network on the same images before they "
    "were corrupted. The images are a fresh draw of the corruptions: single ones may differ a little from the paper's."
)


def means(entries):
    """Return mACR and mAcc with their intervals beside the paper's, in its order, and on which images each row is."""
    lines = [
        "| method | images | mACR | 95 % interval | paper | mAcc, % | 95 % interval | paper |",
        "| :-- | :--" + " | --:" * 6 + " |",
    ]
    order = [*METHODS, None]
    for entry in sorted(entries, key=lambda entry: order.index(entry.method)):
        gaps = set(np.diff(entry.images).tolist())
        which = {1: "all {:,}", 10: "every tenth, {:,}", 100: "every hundredth, {:,}"}.get(max(gaps, default=0), "{:,}")
        cells = [entry.name, (which if len(gaps) == 1 else "{:,}").format(len(entry.images))]
        for kind, (_, _, _, form) in KINDS.items():
            mean, printed = summarize(entry, kind).mean, paper_beside(entry, kind).get("mean")
            cells += [f"{mean.value:{form}}", f"{mean.low:{form}} to {mean.high:{form}}"]
            cells += ["" if printed is None else f"{printed:{form}}"]
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, "", "Intervals are over images, each with all its corruptions."]


def distances(rows):
    """Return a table of how far each ACR is from the paper's, and from its mean over five seeds, where it has one.

    The paper's are means of radii as they were printed, so ours are rounded likewise before they are compared.
    """
    lines = [
        "| sigma | method | ACR | rounded | paper | off by | five seeds | off by | close |",
        "| --: | :--" + " | --:" * 6 + " | :-- |",
    ]
    for row in rows:
        entry, printed = row.entry, row.paper
        if printed is None:
            continue
        _, setup = entry.paper
        own = (entry.dataset, entry.sigma, entry.method)
        # The main tables' settings had them, but on CIFAR-10 other images: every fifth, of another mean.
        same = not setup and entry.dataset == "mnist"
        seeds = paper_row(*own, "tab:variance", "5 seeds") if same else None
        ours = average_certified_radius(as_printed(entry.results.radius), entry.results.correct)
        off, several = ours - printed.acr, seeds and ours - seeds.acr
        close = abs(off) <= tolerance(entry)
        close = close or (seeds is not None and abs(several) <= 2 * seeds.acr_std)
        mean = f"{seeds.acr:.4f} +- {seeds.acr_std:.4f} | {several:+.4f}" if seeds else " | "
        cells = [f"{entry.sigma:.2f}", entry.name, f"{row.acr.value:.4f}", f"{ours:.4f}", f"{printed.acr:.3f}"]
        lines.append(f"| {' | '.join(cells)} | {off:+.4f} | {mean} | {'yes' if close else 'no'} |")
    usual = "0.02 of the paper" if any(is_small(row.entry) for row in rows) else USUAL
    return [*lines, "", f"Close: within {usual}, or two standard deviations of its mean over seeds.", "", ROUNDED]


ROUNDED = (
    "Rounded: our ACR of radii rounded to three digits, as those of the paper are; at sigma 0.5 the largest that "
    "100,000 noises can prove, 1.906, is 1.91 there."
)


def as_printed(radius):
    """Round radii as the published results have them: three significant digits, to nearest."""
    return np.array([float(f"{value:.3}") for value in radius])


USUAL = "0.01 of the paper (CAT-RS on MNIST: 0.005)"


def tolerance(entry):
    """Return how far from the paper's an ACR may be: networks that vary less from seed to seed must come closer."""
    if is_small(entry):
        return 0.02
    return 0.005 if (entry.dataset, entry.method, entry.paper[1]) == ("mnist", "catrs", "") else 0.01


def is_small(entry):
    """Whether it is the ResNet-20 of the paper's ablations, which were tested on 1,000 images."""
    return entry.results.about["settings"]["model"]["architecture"] == "cifar_resnet20"


def notes(folder):
    """Return what the runs of a table have to say of themselves: of one that is not close, what was tried and why."""
    files = sorted(folder.glob("*/note.md"))
    lines = [f"- {path.parent.name}: {' '.join(path.read_text().split())}" for path in files]
    return [*lines, ""] if lines else []


def ranking(table):
    """Return the methods by ACR at each noise level, and every pair that the paper has the other way round."""
    lines = ["| sigma | by ACR, lowest first | the paper's order |", "| --: | :-- | :-- |"]
    swaps = []
    for group in table.groups():
        rows = sorted((row for row in group if row.paper), key=lambda row: row.acr.value)
        turned = [(low, high) for low, high in itertools.combinations(rows, 2) if low.paper.acr > high.paper.acr]
        names = ", ".join(row.entry.name for row in rows)
        lines.append(f"| {group[0].entry.sigma:.2f} | {names} | {'no' if turned else 'yes'} |")
        swaps += [swap_line(low, high) for low, high in turned]
    return [*lines, *([""] if swaps else []), *swaps]


def swap_line(low, high):
    """Return what there is to say of a pair that the paper has the other way round."""
    pair = paired_difference(*((r.idx, r.radius, r.correct) for r in (high.entry.results, low.entry.results)))
    ours = f"{high.entry.name} is {pair.value:.4f} above {low.entry.name} ({pair.low:.4f} to {pair.high:.4f}, paired)"
    return f"- sigma {low.entry.sigma:.2f}: {ours}, in the paper {low.paper.acr - high.paper.acr:.3f} below."


# Seconds of an epoch, and of an image's certificate, in the logs and results that the published repositories hand out;
# of LeNet on MNIST and Fashion-MNIST, on the GPUs they had.
PUBLISHED_EPOCHS = {"gaussian": (2.3, 3.6), "catrs": (27, 27), "smoothadv": (67, 77), "smoothmix": (37, 75)}
PUBLISHED_IMAGE = (0.18, 0.36)
PUBLISHED = (
    "Runs that were trained together share their time. Published: what the logs and results that the published "
    "repositories hand out say of an epoch and of an image, on their GPUs, times as many."
)
COSTS = [
    "| run | GPU | trained in | training, s | published, s | peak memory, GiB | certification, s | published, s |",
    "| --- | --- | --- | --: | --: | --: | --: | --: |",
]


def cost_line(path):
    """Return what a run cost; runs that were trained together share their time and memory."""
    run, results = RunFolder(path.parent), read_results(path)
    config, segments = read_config(path.parent / "config.toml"), results.about["segments"]
    training = sum(row["seconds"] for row in run.read_metrics())
    memory = max((segment.get("peak_memory", 0) for segment in run.read_segments()), default=0)
    spent = sum(segment.get("seconds", 0.0) for segment in segments)
    small = config.architecture == "lenet"
    epoch = PUBLISHED_EPOCHS.get(config.method) if small else None
    cells = [path.parent.name, segments[-1]["device"], config.precision, f"{training:,.0f}", span(epoch, config.epochs)]
    cells += [f"{memory / 2**30:.1f}" if memory else "", f"{spent:,.0f}"]
    return f"| {' | '.join([*cells, span(PUBLISHED_IMAGE if small else None, len(results))])} |"


def span(seconds, times):
    """Return how long something takes so many times, from the shortest to the longest; nothing where it is unknown."""
    if seconds is None:
        return ""
    low, high = (f"{one * times:,.0f}" for one in seconds)
    return low if low == high else f"{low} to {high}"


def verify_page(folder, page):
    """Fail if the page does not say what the files do."""
    assert page.read_text() == results_page(folder), f"{page} is not up to date: `python scripts/results.py write`"
    print(f"{page.name} says what the files say", flush=True)


def verify_all(folder, images, n):
    """Fail if a stored row does not follow from its votes, or a kept network does not give its certificates again."""
    skipped, networks = set(), {}
    for path in certificates(folder):
        results = read_results(path)
        network = results.about["settings"]["model"]["sha256"]
        corrupted = has_corrupted_images(path.parent.parent.name)  # these may be of one that was trained again
        known = networks.setdefault((path.parent.name, corrupted), network)
        assert network == known, f"{path}: another network of that name is kept"
        votes = verify_rows(path, results)
        again = "not certified again"
        if images:
            try:
                again = certify_again(path.parent, results, votes[1], images, n)
            except MissingDataError as error:
                skipped.add(str(error))
        print(f"{path.relative_to(folder)}: {len(results):,} rows follow from their votes; {again}", flush=True)
    if skipped:
        raise smoothcert.SmoothcertError(f"Networks were not certified again: {' '.join(sorted(skipped))}")


def verify_rows(path, results):
    """Compute every row again from its votes, and return them."""
    settings = results.about["settings"]
    votes = read_counts(path, classes_of(settings["data"]["name"]) or 10)
    chosen = np.array([line.split("\t")[0] for line in read_text(counts_path(path)).splitlines()[1:]], dtype=int)
    assert np.array_equal(chosen, results.idx), f"{path}: rows and votes are not of the same images"
    asked = settings["images"]
    asked = range(*map(int, asked.split(":"))) if isinstance(asked, str) else asked
    assert np.array_equal(chosen, list(asked)), f"{path}: not the images that were to be certified"
    drawn = [np.unique(stage.sum(axis=1)).tolist() for stage in votes]
    assert drawn == [[settings["n0"]], [settings["n"]]], f"{path}: not as many votes as there were noises"
    predict, radius, _ = certify_counts(*votes, settings["sigma"], settings["alpha"])
    assert np.array_equal(predict, results.predict), f"{path}: a class does not follow from the votes"
    assert np.array_equal(radius, results.radius), f"{path}: a radius does not follow from the votes"
    assert np.array_equal(predict == results.label, results.correct), f"{path}: a row is right by its label, or is not"
    return votes


class MissingDataError(smoothcert.SmoothcertError):
    """The images that a network was certified on are not here."""


def certify_again(run, results, votes, images, n):
    """Certify a few images on the CPU in float32: fresh noise must not contradict the stored votes."""
    settings = results.about["settings"]
    if run.name not in smoothcert.list_pretrained():
        assert settings["model"].get("method") not in WITH_WEIGHTS, f"{run}: its network is not kept"
        return "no weights kept"
    checkpoint = smoothcert.load_pretrained(run.name)
    assert checkpoint.sha256 == settings["model"]["sha256"], f"{run}: these are not the weights that were certified"
    name = settings["data"]["name"]
    try:
        data = smoothcert.load_dataset(name, "test")
    except smoothcert.SmoothcertError as error:
        if "/" in name:  # and another draw of the corruptions, which is what can be had, would not do
            return f"not certified again ({name} is not here)"
        raise MissingDataError(str(error)) from error
    same = data.fingerprint == settings["data"]["sha256"]
    if not same and "/" in data.name:  # another draw of the corruptions, or the published one
        return f"not certified again ({data.name} here is another draw)"
    assert same, f"{run}: these are not the images that were certified"
    assert np.array_equal(data.labels[results.idx], results.label), f"{run}: a label is not the image's"
    smoothed = smoothcert.SmoothedClassifier(checkpoint.model, settings["sigma"], checkpoint.model.num_classes)
    for row in np.linspace(0, len(results) - 1, images).round().astype(int):
        index = int(results.idx[row])
        fresh = smoothed.counts(data.floats([index])[0], n, seed=1, index=index).numpy()
        (low, high), (least, most) = interval(fresh), interval(votes[row])
        assert ((low <= most) & (least <= high)).all(), f"{run}: image {index} votes otherwise"
        top, predict = int(fresh.argmax()), int(results.predict[row])
        assert low[top] <= 0.5 or predict in (top, ABSTAIN), f"{run}: image {index} is another class"
        radius = gaussian_radius(1 - high[predict], settings["sigma"])
        assert results.radius[row] <= radius, f"{run}: image {index} has another radius"
    return f"{images} images vote alike on the CPU"


def interval(votes, doubt=1e-6):
    """Return bounds of every class's probability that fail, each, once in a million times."""
    n = votes.sum()
    return lower_bound(votes, n, doubt), 1 - lower_bound(n - votes, n, doubt)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()

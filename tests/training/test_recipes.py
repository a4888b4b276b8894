"""Every recipe against the hyperparameters of the paper (Appendix B) and of the published code."""

import dataclasses
import hashlib
import math
import re

import pytest

from smoothcert.errors import SmoothcertError, UsageError
from smoothcert.methods import create_method
from smoothcert.report.tables.paper_numbers import PAPER_METHODS, paper_numbers
from smoothcert.training.config import TrainConfig, make_config, read_config, to_toml, without_sampling
from smoothcert.training.recipes import list_recipes, load_recipe, paper_tables
from smoothcert.training.settings import GROUPS
from smoothcert.training.teachers import teacher_config

SIGMAS = (0.25, 0.5, 1.0)
NEARLY_ONE = 255 / 256
MAIN = {"mnist": SIGMAS, "fashion-mnist": SIGMAS, "cifar10": SIGMAS, "cifar100": (0.25, 0.5)}


def expected_options(group, method, sigma):
    """Return the options of the paper's Appendix B, with the published code's values if they are rounded or missing."""
    i, small = SIGMAS.index(sigma), "mnist" in group
    if method == "gaussian":
        return {}
    if method == "stability":
        return {"weight": 1.0 if sigma == 1.0 and not small else 2.0}
    if method == "smoothadv":
        radius = NEARLY_ONE if small else (1.0, 1.0, 2.0)[i]
        noises = 4 if small else (4, 8, 2)[i]
        return {"num_noises": noises, "attack_radius": radius, "attack_steps": 10, "warmup": 10}
    if method == "macer":
        weight = {"mnist": (16, 16, 6), "fashion-mnist": (16, 8, 2)}.get(group, (12, 4, 12))[i]
        deferred = 31 if small else (0, 0, 51)[i]
        common = {"num_noises": 16, "margin": 8.0, "temperature": 16.0}
        return {**common, "weight": weight, **({"defer_epochs": deferred} if deferred else {})}
    if method == "consistency":
        return {"num_noises": 2, "weight": ((10, 5, 5) if small else (20, 10, 10))[i], "entropy_weight": 0.5}
    if method == "smoothmix":
        own = {"step_size": 1.0, "attack_steps": (2, 4, 8)[i], "num_noises": 4, "one_step_adversary": False}
        cifar = {"step_size": (0.5, 1.0, 2.0)[i], "attack_steps": 4, "num_noises": 2, "one_step_adversary": i > 0}
        return {"weight": 5.0, **(own if small else cifar)}
    return {"num_noises": 4, "attack_steps": 4, "attack_radius": 1.0, "weight": 1.0 if small else (0.5, 1.0, 2.0)[i]}


@pytest.mark.parametrize("method", PAPER_METHODS)
@pytest.mark.parametrize(("group", "sigma"), [(group, sigma) for group, sigmas in MAIN.items() for sigma in sigmas])
def test_main_tables(group, sigma, method):
    config = load_recipe(f"{group}-{method}-{sigma:.2f}")
    assert dict(config.options) == expected_options(group, method, sigma)
    small = "mnist" in group
    assert (config.method, config.sigma, config.dataset) == (method, sigma, group.replace("-", "_"))
    assert config.architecture == ("lenet" if small else "cifar_resnet110")
    assert config.learning_rate == (0.01 if small else 0.1)
    assert (config.momentum, config.weight_decay, config.lr_factor) == (0.9, 1e-4, 0.1)
    assert (config.epochs, config.lr_step) == ((90, 30) if small and method != "catrs" else (150, 50))
    assert config.augmentation == ("none" if small else "crop-flip")
    assert config.batch == (64 if method == "macer" and group != "mnist" else 256)
    assert (config.steps, config.lr_drops) == ("split", "late")
    assert (config.label_sigma, config.label_samples) == (0.25, 10_000)
    assert config.label_view == ("augmented" if method == "catrs" and not small else "clean")


DISCARD = {0.25: (60, 0.5, 0.25, 3), 0.5: (70, 0.4, 0.25, 6), 1.0: (60, 0.4, 0.5, 4)}
"""By sigma: epoch and threshold of the discard, length and number of attack steps, as published for CIFAR-10."""


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("group", ["mnist", "fashion-mnist", "cifar10", "cifar10-resnet20"])
def test_first_failure_and_its_baselines(group, sigma):
    config, gaussian = (
        load_recipe(f"{group}-{name}") for name in (f"first-failure-{sigma:.2f}", f"gaussian-{sigma:.2f}-m4")
    )
    epoch, below, length, steps = DISCARD[sigma]
    if "mnist" in group:
        epoch, length, steps = 60, sigma / 2, min(4, steps)
    assert (config.sampling, config.sampling_epoch, config.discard_below) == ("replacement", epoch, below)
    assert (config.discard_samples, config.reweight_every, config.reweight_samples) == (100, 10, 16)
    attack = {"num_noises": 4, "step_size": length, "attack_steps": steps, "attack_epoch": epoch}
    assert dict(config.options) == attack
    assert [config.learning_rate_at(e) / config.learning_rate for e in (49, 50, 99, 100)] == pytest.approx(
        [1, 0.1, 0.1, 0.01]
    )
    published = load_recipe(f"{group}-gaussian-0.50", sigma=sigma, epochs=150, lr_step=50, lr_drops="on-time")
    options = {"num_noises": 4}
    assert gaussian == dataclasses.replace(published, name=gaussian.name, options=options)
    assert without_sampling(config, name=gaussian.name, method="gaussian", options=options) == gaussian
    if group != "cifar10-resnet20":
        free = load_recipe(f"{config.name}-attack-free")
        assert dataclasses.replace(config, name=free.name, options={"num_noises": 4, "attack_steps": 0}) == free
    if "mnist" in group:
        sampled, catrs = (load_recipe(f"{group}-catrs-{sigma:.2f}{end}") for end in ("-discard-reweight", ""))
        assert without_sampling(sampled, name=catrs.name) == catrs
        assert dataclasses.replace(
            config, name="x", method="gaussian", options={}, lr_drops="late"
        ) == dataclasses.replace(sampled, name="x", method="gaussian", options={})


@pytest.mark.parametrize(
    ("sigma", "noises", "below", "length", "steps"),
    [(0.25, 1, 0.2, 0.5, 2), (0.5, 1, 0.2, 1.0, 2), (1.0, 2, 0.1, 2.0, 1)],
)
def test_first_failure_on_imagenet(sigma, noises, below, length, steps):
    config = load_recipe(f"imagenet-first-failure-{sigma:.2f}")
    assert dict(config.options) == {"num_noises": noises, "step_size": length, "attack_steps": steps}
    assert (config.sampling_epoch, config.discard_below, config.reweight_every) == (0, below, 0)
    assert [config.learning_rate_at(e) for e in (49, 50, 89)] == pytest.approx([0.1, 0.01, 0.01])
    assert config.discard_file


def test_the_text_of_a_configuration_never_changes():
    """Names of teachers end in a hash of it, and existing run folders are compared with it."""
    teacher = teacher_config(load_recipe("cifar10-catrs-0.50", precision="bf16"))
    assert teacher.name == "cifar10-cifar_resnet110-teacher-07e2de"
    every = "".join(to_toml(config) for config in (TrainConfig(), *map(load_recipe, list_recipes("*-catrs-?.??"))))
    assert hashlib.sha256(every.encode()).hexdigest()[:12] == "48643ebe394b"


def test_any_text_and_number_survives_the_file(tmp_path):
    config = TrainConfig(
        dataset='Bilder/Größe \U0001f600 = "a\\b"\n\x7f.npz',
        method="smoothadv",
        options={"attack_radius": math.inf, "warmup": 3},
        weight_decay=1e-17,
    )
    (tmp_path / "again.toml").write_text(to_toml(config), encoding="utf-8")
    assert read_config(tmp_path / "again.toml") == config


def test_names_of_teachers_do_not_depend_on_the_writer_of_toml():
    teacher = teacher_config(TrainConfig(dataset="Bilder/Größe\U0001f600.npz", method="catrs"))
    assert teacher.name == "Gr--e--lenet-teacher-b7f6d7"  # made by a version that wrote JSON's strings


def test_every_field_with_a_flag_is_in_one_group():
    names = [name for group in GROUPS.values() for name in group]
    without = {"options", "network", "initial_weights"}
    assert names == [field.name for field in dataclasses.fields(TrainConfig) if field.name not in without]


def test_a_recipe_file_by_path_object(tmp_path):
    (tmp_path / "mine.toml").write_text("epochs = 3\n")
    assert load_recipe(tmp_path / "mine.toml") == load_recipe(str(tmp_path / "mine.toml"))
    with pytest.raises(SmoothcertError, match="cannot be read"):
        load_recipe(tmp_path / "absent")


def test_imagenet():
    config = load_recipe("imagenet-catrs-1.00")
    assert dict(config.options) == {
        "num_noises": 2, "attack_radius": 1.0, "attack_steps": 1, "weight": 2.0,
        "confidence": "soft-label", "late_radius": 2.0, "late_epoch": 80,
    }  # fmt: skip
    assert (config.epochs, config.lr_step, config.final_drop, config.label_samples) == (90, 30, "one-epoch", 500)
    assert len(list_recipes("imagenet-*")) == 8


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_parses_and_round_trips(name, tmp_path):
    config = load_recipe(name)
    method = create_method(config.method, config.sigma, config.options)
    assert config.name == name
    (tmp_path / "again.toml").write_text(to_toml(config))
    assert read_config(tmp_path / "again.toml") == config
    assert f"{config.sigma:.2f}" in name
    assert method.name.replace("_", "-") in name


def test_every_row_of_every_table_has_a_recipe():
    """The rows of our tables are exactly the (dataset, sigma, method, setup) that the paper prints."""
    for name, table in paper_tables().items():
        if not table.paper:
            continue
        printed = {
            (row["sigma"], row["method"], row["setup"])
            for row in paper_numbers()
            if row["table"] == table.paper and (name != "variance" or row["dataset"] == "mnist")
        }
        if name.endswith("-c"):
            printed = {(sigma, method, "") for sigma, method, _ in printed}
        if name == "variance-cifar10":
            printed = {row for row in printed if row[0] == "0.50"}
        ours = set()
        for recipe, setup in table.rows:
            config = load_recipe(recipe)
            method = "catrs" if table.paper.startswith("tab:cifar10_abla") else config.method
            ours.add((f"{config.sigma:.2f}", method, setup))
        assert ours == printed, name


def test_equal_budgets_change_nothing_but_the_epochs():
    rows = {
        recipe.removesuffix("-150epochs"): load_recipe(recipe) for recipe, _ in paper_tables()["equal-budgets"].rows
    }
    assert list(rows) == [recipe for recipe, _ in paper_tables()["fashion-mnist"].rows]
    for recipe, config in rows.items():
        published = load_recipe(recipe)
        assert (config.epochs, config.lr_step) == (150, 50)
        options = dict(published.options)
        if config.method == "macer":
            options["defer_epochs"] = 51  # in both, it starts with the first drop of the learning rate
        same = {"name": config.name, "epochs": 150, "lr_step": 50, "options": options}
        assert dataclasses.replace(published, **same) == config


@pytest.mark.parametrize(
    ("table", "images"),
    [("mnist", 10_000), ("cifar10", 10_000), ("ablation-loss", 1000), ("variance-cifar10", 2000), ("imagenet", 500)],
)
def test_each_table_has_the_papers_test_images(table, images):
    total = 50_000 if table == "imagenet" else 10_000
    assert len(range(0, total, paper_tables()[table].skip)) == images


@pytest.mark.parametrize("table", ["tradeoff", "ablation-lambda", "ablation-m"])
def test_sweeps_vary_what_they_say(table):
    for recipe, setup in paper_tables()[table].rows:
        config = load_recipe(recipe)
        if setup == "-":
            assert config.method == "gaussian"
        elif setup.startswith("M="):
            assert config.options["num_noises"] == int(setup[2:])
        else:
            assert config.options["weight"] == pytest.approx(float(re.sub(r".*=", "", setup)), abs=0.0051)


def test_ablations_differ_from_the_full_method_in_one_thing():
    full = load_recipe("cifar10-resnet20-catrs-0.50")
    changes = {
        "low-only": {"high": "none"},
        "high-only": {"low": "none", "mask": False},
        "base-high": {"low": "mean", "mask": False},
        "low-high": {"mask": False},
        "mean-noise": {"high": "mean"},
        "mean-target": {"target": "mean-prediction"},
        "label-target": {"target": "label"},
    }
    for suffix, change in changes.items():
        config = load_recipe(f"cifar10-resnet20-catrs-0.50-{suffix}")
        assert dataclasses.replace(config, name=full.name, options=full.options) == full
        assert dict(config.options) == {**full.options, **change}


def test_learning_rates_as_published_and_as_in_the_text():
    late, text = TrainConfig(learning_rate=0.1), TrainConfig(learning_rate=0.1, lr_drops="on-time")
    assert [late.learning_rate_at(e) for e in (0, 50, 51, 100, 101)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])
    assert [text.learning_rate_at(e) for e in (0, 49, 50, 99, 100)] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001])
    lengths = [sum(late.learning_rate_at(e) == rate for e in range(150)) for rate in (0.1, 0.1 * 0.1, 0.1 * 0.1**2)]
    assert lengths == [51, 50, 49]
    imagenet = {"epochs": 90, "lr_step": 30, "learning_rate": 0.1}
    for final, expected in (
        ("one-epoch", [1e-3, 1e-4, 1e-3]),
        ("to-the-end", [1e-3, 1e-4, 1e-4]),
        ("none", [1e-3] * 3),
    ):
        config = TrainConfig(**imagenet, final_drop=final)
        assert [config.learning_rate_at(e) for e in (84, 85, 86)] == pytest.approx(expected)
    cycle = TrainConfig(schedule="one-cycle", learning_rate=0.1)
    rates = [cycle.learning_rate_at(0, i / 100) for i in range(100)]
    assert rates.index(max(rates)) == 30
    assert [rates[i] for i in (0, 15, 30, 65)] == pytest.approx([0.01, 0.055, 0.1, 0.05]), "linear up and down"
    assert cycle.learning_rate_at(0, 0.9999) == pytest.approx(1e-4), "never to zero"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sigma": 0.0}, "`sigma` to be > 0, but got 0.0"),
        ({"epochs": 0}, "`epochs` to be at least 1"),
        ({"learning_rate": -0.1}, "`learning_rate` to be > 0"),
        ({"momentum": 1.0}, "`momentum` to be below 1"),
        ({"precision": "fp16"}, "`precision` to be one of fp32, tf32, bf16"),
        ({"seed": 1 << 63}, "`seed` to be below"),
        ({"steps": "both"}, "`steps` to be one of split, whole"),
        ({"name": "a/b"}, "`name` to consist of"),
        ({"color": 1}, "unknown fields: color"),
        ({"epoch": 1}, "unknown fields: epoch; did you mean 'epochs'"),
        ({"options": {"weight": 2.0}}, "unknown fields: options. Put options of the method into the table .method."),
        ({"method": 3}, "Expected method in here to be a name or a table, but got 3"),
        ({"method": ["catrs"]}, "method in here to be a name"),
        ({"epochs": 1.5}, "epochs in here to be of type int, but got 1.5"),
        ({"epochs": True}, "epochs in here to be of type int"),
        ({"sigma": "much"}, "sigma in here to be of type float"),
    ],
)
def test_bad_configurations(values, message):
    with pytest.raises(UsageError, match=message):
        make_config(values, "here")


def test_missing_recipes_and_broken_files(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean 'mnist-catrs-0.50'\? Nearest of \d+: [^:]{,120}$"):
        load_recipe("mnist-catrs-0.5")
    (tmp_path / "bad.toml").write_text("sigma = = 1")
    with pytest.raises(SmoothcertError, match="cannot be read as TOML"):
        load_recipe(str(tmp_path / "bad.toml"))
    (tmp_path / "bad.toml").write_text("# to be written\n")
    with pytest.raises(SmoothcertError, match="bad.toml has no settings; `smoothcert train RECIPE"):
        load_recipe(str(tmp_path / "bad.toml"))


def test_overrides():
    config = load_recipe("mnist-catrs-0.50", epochs=3, options={"weight": 2.0})
    assert (config.epochs, config.options["weight"], config.options["num_noises"]) == (3, 2.0, 4)
    other = load_recipe("mnist-catrs-0.50", method="macer")
    assert dict(other.options) == {}, "another method has none of the recipe's options"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 5}, "^Unknown field 'epoch'; did you mean 'epochs'?"),
        ({"num_noises": 2}, "Put the method's options in the dict `options`.$"),
        ({"epochs": "many"}, "^Expected `epochs` to be of type int, but got 'many'"),
        ({"options": 5}, "^Expected `options` to be of type Mapping, but got 5"),
    ],
)
def test_wrong_overrides(overrides, message):
    with pytest.raises(UsageError, match=message):
        load_recipe("mnist-catrs-0.50", **overrides)

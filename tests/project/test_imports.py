"""The core needs only its declared dependencies, and public names load on first use."""

import subprocess
import sys
from pathlib import Path

import smoothcert

CORE = """
import sys

ABSENT = "PIL torchvision pandas matplotlib tqdm statsmodels sklearn jinja2 tensorboard".split()

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Guard())
import torch, smoothcert
data = smoothcert.load_dataset("mnist-mini")
model = smoothcert.create_model("lenet")
path = sys.argv[1]
smoothcert.save_checkpoint(path + "/m.safetensors", model, sigma=0.25, dataset="mnist-mini")
smoothed = smoothcert.SmoothedClassifier(smoothcert.load_checkpoint(path + "/m.safetensors").model, 0.25)
smoothcert.certify_dataset(smoothed, data, path + "/a.tsv", n=50, indices=[0, 1])
from smoothcert.cli import main
assert main(["report", path + "/a.tsv"]) == 0
sys.stderr.isatty = sys.stdout.isatty = lambda: True  # a terminal, where rich would draw
assert main(["certify", path + "/m.safetensors", "--n", "50", "--max", "2"]) == 0
"""


def test_the_core_needs_no_optional_package(tmp_path):
    done = subprocess.run([sys.executable, "-c", CORE, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_votes_are_certified_again_without_torch():
    """The packages that never import it are in test_architecture.py."""
    modules = "cascade, recertify, scheduler"
    code = f"import sys\nfrom smoothcert.certification import {modules}\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_torchvision_is_never_imported():
    for file in Path(smoothcert.__file__).parent.rglob("*.py"):
        assert "import torchvision" not in file.read_text()
        assert "from torchvision" not in file.read_text()


def test_every_public_name_exists():
    for name in smoothcert.__all__:
        assert getattr(smoothcert, name) is not None
    assert [name for name in dir(smoothcert) if not name.startswith("_")] == sorted(smoothcert.__all__)


def test_public_modules_load_with_the_package():
    code = "import smoothcert; smoothcert.bounds.smallest_sample(0.1), smoothcert.metrics, smoothcert.stopping"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

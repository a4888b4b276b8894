"""The core needs only its declared dependencies, and public names load on first use."""

import subprocess
import sys

import smoothcert

CORE = """
import sys

ABSENT = "PIL torchvision pandas matplotlib tqdm statsmodels sklearn jinja2 tensorboard".split()

class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} is not installed")
        assert name != "triton", "kernels alone import Triton, where a CUDA device will run it"

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


def test_every_public_name_exists():
    for name in smoothcert.__all__:
        assert getattr(smoothcert, name) is not None
    assert [name for name in dir(smoothcert) if not name.startswith("_")] == sorted(smoothcert.__all__)


def test_public_modules_load_with_the_package():
    code = "import smoothcert; smoothcert.bounds.smallest_sample(0.1), smoothcert.metrics, smoothcert.stopping"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

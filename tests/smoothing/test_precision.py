"""Precision is independent of the caller's PyTorch settings; its flags exist without a GPU, too."""

import pytest
import torch

from smoothcert.smoothing.precision import numerics

CUDA = torch.device("cuda")
MATMUL, CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn
PLACES = MATMUL, CUDNN.conv, CUDNN.rnn, CUDNN, torch.backends


def state():
    return [place.fp32_precision for place in PLACES]


@pytest.fixture
def flags():
    before = state()
    yield
    for place in PLACES:
        place.fp32_precision = "none"
    MATMUL.allow_tf32, CUDNN.allow_tf32 = False, True
    for place, value in zip(PLACES, before, strict=True):
        place.fp32_precision = value


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (MATMUL, "ieee"),  # the state after any use
        (MATMUL, "tf32"),
        (CUDNN.conv, "ieee"),
        (CUDNN.rnn, "ieee"),
        (CUDNN, "tf32"),
        (torch.backends, "tf32"),
    ],
)
def test_tf32_is_set_and_restored(flags, place, value):
    MATMUL.fp32_precision, place.fp32_precision = "ieee", value
    before = state()
    with numerics("fp32", CUDA):
        assert not MATMUL.allow_tf32
        assert not CUDNN.allow_tf32
        assert "tf32" not in state()
    with numerics("tf32", CUDA):
        assert MATMUL.allow_tf32
        assert CUDNN.allow_tf32
        assert state()[:2] == ["tf32", "tf32"]
    assert state() == before


def test_fp32_on_a_cpu_ignores_the_callers_matmul_precision():
    left, right = torch.randn(2, 256, 256)
    expected = left @ right
    torch.set_float32_matmul_precision("medium")
    try:
        with numerics("fp32", torch.device("cpu")):
            assert torch.equal(left @ right, expected)
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision("highest")

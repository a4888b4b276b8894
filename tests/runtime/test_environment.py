"""The choice of a device."""

import pytest
import torch

from smoothcert.errors import UsageError
from smoothcert.runtime.environment import choose_device


@pytest.mark.parametrize("device", [None, 0, 0.5, b"cpu", ["cpu"]])
def test_a_device_is_a_name_or_a_torch_device(device):
    with pytest.raises(UsageError, match="Expected `device` to be of type str or device"):
        choose_device(device)
    assert choose_device("cpu") == choose_device(torch.device("cpu")) == torch.device("cpu")

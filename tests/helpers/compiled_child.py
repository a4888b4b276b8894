"""Compares compiled and uncompiled steps with synchronized BatchNorm, under torchrun."""

import torch
from ranks_child import Doubles
from torch import nn

from smoothcert.distributed.ranks import end_process_of_rank, join, leave
from smoothcert.methods import create_method
from smoothcert.training.stepper import Stepper


def train(ranks, compiled):
    torch.manual_seed(0)
    data = Doubles(
        torch.randint(256, (16, 1, 8, 8), dtype=torch.uint8), torch.arange(16) % 10, torch.full((16, 10), 0.1), "none"
    )
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    model = nn.Sequential(*layers).double().train()
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    method = create_method("consistency", 0.25, {})
    stepper = Stepper(model, method, optimizer, data, seed=3, precision="fp32", ranks=ranks, sync=True)
    if compiled:
        stepper.compile(8)
    part = ranks.share_of(8)
    for step in range(2):
        first = 8 * step + part.first
        stepper.set_position(0, step, 0.02)
        stepper.take_step((torch.arange(first, first + part.size),), 8)
    assert bool(stepper.compiled_loss and stepper.compiled_loss.variants) == compiled, "it fell back"
    return model.state_dict()


def main():
    ranks = join()
    ranks.connect(torch.device("cpu"))
    eager, compiled = train(ranks, False), train(ranks, True)
    for name, value in eager.items():
        torch.testing.assert_close(compiled[name], value, rtol=0, atol=1e-8)
    if ranks.first:
        print("the same")
    leave()
    end_process_of_rank(0)


if __name__ == "__main__":
    main()

"""Training steps as CUDA graphs, captured once per phase (see `Stepper`) and mini-batch size, then replayed."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from smoothcert.distributed.ranks import BatchShare
from smoothcert.errors import Notice, first_line
from smoothcert.methods import Method
from smoothcert.smoothing.cuda_graphs import capturing
from smoothcert.training.batches import Inputs
from smoothcert.training.stepper import Stepper, new_stream

_WARM_UP_STEPS = 3


class GraphStepper(Stepper):
    """A `Stepper` for CUDA devices that replays graphs, after a few ordinary steps for each mini-batch size."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._replays = True
        self._taken: dict[BatchShare, int] = {}
        self._captured: dict[BatchShare, tuple[Inputs, torch.cuda.CUDAGraph]] = {}
        self._capture_stream = new_stream(self.device)  # a separate stream has its own cuBLAS scratch memory

    def enter_phase(self, phase: Method) -> None:
        """Use the method `phase` for the next steps, and free the graphs of the previous phase."""
        super().enter_phase(phase)
        self._taken.clear()
        self._captured.clear()

    def take_step(self, inputs: Inputs, images: int) -> None:
        """Take one step, replaying a graph if one has been captured or can be captured now."""
        share = self.ranks.share_of(images)
        self._taken[share] = self._taken.get(share, 0) + 1
        if not self._replays:
            super().take_step(inputs, images)
            return
        if self._taken[share] <= _WARM_UP_STEPS:
            drawn = torch.get_rng_state()
            super().take_step(inputs, images)
            # A graph would repeat random choices made on the CPU, such as which layers to skip.
            if not torch.equal(drawn, torch.get_rng_state()):
                self._give_up("the network draws random numbers on the CPU")
            return
        if share not in self._captured:
            try:
                self._captured[share] = self._capture(inputs, images)
            except RuntimeError as error:
                self._give_up(first_line(error))
                super().take_step(inputs, images)
                return
        places, graph = self._captured[share]
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()

    def _give_up(self, reason: str) -> None:
        self._replays = False
        warnings.warn(
            f"Steps run without CUDA graphs, because they cannot be captured ({reason}).", Notice, stacklevel=3
        )

    def _capture(self, inputs: Inputs, images: int) -> tuple[Inputs, torch.cuda.CUDAGraph]:
        places, graph = tuple(value.clone() for value in inputs), torch.cuda.CUDAGraph()
        with capturing(graph, self._capture_stream):
            super().take_step(places, images)
        return places, graph

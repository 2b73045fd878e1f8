"""The recorded states of a row made one hidden: norms over all of them or over each, and `fc`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.checkpoint.config import DrafterConfig
from drafter.model.norm import rms_norm
from drafter.model.projection import Weights, weight_of


class Fusion:
    """g [n, H] = fc(concat(states)). Without `fc` the one recorded state, H wide, is the hidden itself.

    `skip_fc`: so it is although there is an `fc`, as for a server that tells by the width whether to apply it.
    """

    def __init__(self, weights: Weights, config: DrafterConfig, skip_fc: bool = False) -> None:
        self._fc = weight_of(weights, "fc.weight") if config.use_aux and not skip_fc else None
        self._bias, self._eps = weights.get("fc.bias"), config.rms_norm_eps
        self.width = config.target_hidden_size if self._fc is not None else config.hidden_size
        self.inputs = 1 if self._fc is None else self._fc.shape[1] // self.width  # A, the states that it takes
        self._joint = weight_of(weights, "input_norm.weight") if config.norm_before_fc else None
        norms = range(self.inputs) if config.fc_norm else ()
        self._each = [weight_of(weights, f"fc_norm.{i}.weight") for i in norms]

    @property
    def is_sum(self) -> bool:
        """Whether fc(concat(a, b, c)) may be summed from products per state: no norm spans all of them."""
        return self._fc is not None and self._joint is None

    def __call__(self, states: list[Tensor]) -> Tensor:
        """g [n, H] of the states [n, Ht], in order; the norm over all comes before the norms over each."""
        if self._joint is not None:
            states = list(rms_norm(torch.cat(states, -1), self._joint, self._eps).split(self.width, -1))
        joined = torch.cat([self._chunk_norm(state, i) for i, state in enumerate(states)], -1)  # [n, A * Ht]
        return joined if self._fc is None else F.linear(joined, self._fc, self._bias)

    def part(self, state: Tensor, position: int) -> Tensor:
        """[n, H]: what `state` [n, Ht] contributes when it stands at `position` among the inputs."""
        assert self._fc is not None
        block = self._fc[:, position * self.width : (position + 1) * self.width]
        return F.linear(self._chunk_norm(state, position), block)

    def total(self, parts: list[Tensor]) -> Tensor:
        """g [n, H] of its parts."""
        total = torch.stack(parts).sum(0)
        return total if self._bias is None else total + self._bias

    def _chunk_norm(self, state: Tensor, position: int) -> Tensor:
        return rms_norm(state, self._each[position], self._eps) if self._each else state

"""A linear map over concat(e, hN), kept in two halves: what the token contributes does not depend on the ordering."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.errors import CheckpointError

Weights = dict[str, Tensor]


def weight_of(weights: Weights, name: str) -> Tensor:
    """The tensor `name`. Raises CheckpointError where there is none."""
    if name not in weights:
        raise CheckpointError(f"no {name!r}", expected="a tensor that this forward needs")
    return weights[name]


@dataclass(frozen=True)
class TokenHalf:
    """What tokens contribute to the first projections of layer 0, [n, out] by projection, in the attention's order."""

    parts: tuple[Tensor, ...]

    def take(self, rows: Tensor) -> TokenHalf:
        return TokenHalf(tuple(part[rows] for part in self.parts))

    def repeat(self, rows: int) -> TokenHalf:
        """The one token of this half, in `rows` rows."""
        return TokenHalf(tuple(part.expand(rows, -1) for part in self.parts))


class Linear:
    def __init__(self, weights: Weights, name: str) -> None:
        self.weight, self.bias = weight_of(weights, f"{name}.weight"), weights.get(f"{name}.bias")

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Joined(Linear):
    """A linear over concat(e, hN) in layer 0 and over the normed hidden alone in the layers above; H wide each."""

    def __init__(self, weights: Weights, name: str, width: int) -> None:
        super().__init__(weights, name)
        self._token, self._hidden = self.weight[:, :width], self.weight[:, width:].T

    def token(self, e: Tensor) -> Tensor:
        """[n, out]: what the normed embedding e [n, H] contributes, the bias included."""
        return F.linear(e, self._token, self.bias)

    def join(self, normed: Tensor, tokens: TokenHalf | None, part: int) -> Tensor:
        """[n, out] of the normed hidden [n, H] beside `part` of what the tokens contribute, if there are tokens."""
        return self(normed) if tokens is None else torch.addmm(tokens.parts[part], normed, self._hidden)

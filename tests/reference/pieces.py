"""What every part of the reference needs: a norm, and the tensors by name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., n] over its root mean square, times weight [n]; no mean is subtracted, the weight is not 1 + w."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Weights:
    """Float32 tensors under canonical names, and the two things done with them."""

    def __init__(self, tensors: Mapping[str, Tensor], eps: float) -> None:
        self.tensors = {name: tensor.float() for name, tensor in tensors.items() if tensor.is_floating_point()}
        self.eps = eps

    def __contains__(self, name: str) -> bool:
        """Whether the module `name` has a weight."""
        return f"{name}.weight" in self.tensors

    def norm(self, x: Tensor, name: str) -> Tensor:
        return rms(x, self.tensors[f"{name}.weight"], self.eps)

    def linear(self, x: Tensor, name: str) -> Tensor:
        """x [in] -> [out]; a bias is added where the checkpoint has one."""
        y = self.tensors[f"{name}.weight"] @ x
        return y + self.tensors[f"{name}.bias"] if f"{name}.bias" in self.tensors else y

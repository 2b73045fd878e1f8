"""Whether the rows of a drafter's head are the target's rows at the mapped ids, as they are where training began there.

A head that was cut out at the offsets instead of the ids has the rows of other tokens; only this shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CLEAR = 0.1  # of cosine, above what any two rows have in common


@dataclass(frozen=True)
class HeadAgreement:
    """Mean cosine of `rows` rows with the target's at their ids, and with the target's at each other's ids."""

    matched: float
    shuffled: float
    rows: int

    @property
    def fits(self) -> bool:
        """Whether the head was made from the target's rows at these ids; False also for one made from nothing."""
        return self.matched - self.shuffled > _CLEAR


def head_agreement(head: torch.Tensor, target_head: torch.Tensor, target_ids: torch.Tensor) -> HeadAgreement:
    """Compare `head` [n, H], whose rows stand for `target_ids` [n], with `target_head` [V, H]."""
    import torch

    rows, others = torch.nn.functional.normalize(head.float(), dim=-1), target_head[target_ids].float()
    others = torch.nn.functional.normalize(others, dim=-1)
    matched, shuffled = (rows * others).sum(-1), (rows * others.roll(max(1, len(others) // 2), 0)).sum(-1)
    return HeadAgreement(float(matched.mean()), float(shuffled.mean()), head.shape[0])

"""The accept length that accuracies per draft step imply, and what the usual mistake would make of them.

Three readings of "accuracy at step k" go into formulas (bonus token counted in each, so a drafter that is never right
has 1):

- conditional: right at k among the chains right before; 1 + c0 + c0 c1 + c0 c1 c2 ...
- joint: right at 0..k at once, as vLLM's per-position acceptance; 1 + p0 + p1 + p2 ...
- marginal: right at k whatever came before, as most trainers print. To multiply these is the usual mistake: a chain
  that was right before is mostly likelier to be right again, so the product is mostly too small.

Plain numbers: knows no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafter.errors import WiringError


def length_of_conditionals(accuracies: Sequence[float | None]) -> float | None:
    """1 + the sum of products of per-step accuracies, each given that all before were right.

    None (no chain got there) counts as 0 behind a product of 0; elsewhere the length is not known: None.
    """
    total = product = 1.0
    for accuracy in accuracies:
        if product == 0.0:
            break
        if accuracy is None:
            return None
        product *= _checked(accuracy)
        total += product
    return total


def length_of_joints(accuracies: Sequence[float | None]) -> float | None:
    """1 + the sum of the shares of chains that are right up to each step."""
    known = [_checked(accuracy) for accuracy in accuracies if accuracy is not None]
    return 1.0 + sum(known) if len(known) == len(accuracies) else None


def _checked(accuracy: float) -> float:
    if not 0.0 <= accuracy <= 1.0:
        raise WiringError(f"an accuracy of {accuracy:g}", expected="0 to 1")
    return accuracy

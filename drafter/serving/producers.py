"""What a layer id meant to whoever trained the drafter (checkpoints.md 5.1): id -> depth, and the default ids.

A depth counts layers passed: 0 is the embedding's output, n the last layer's before the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Depths = tuple[int, ...]


def usual(n: int) -> Depths:
    """The default depths of nearly everybody for a target of `n` layers."""
    return (2, n // 2, n - 3)


@dataclass(frozen=True)
class Producer:
    """depth = id + `shift`. `extra`: how many of the default ids, at the end, are the verifier's and not fed to fc."""

    shift: int
    default_ids: Callable[[int], Depths]
    source: str
    extra: int = 0

    def depths(self, ids: Sequence[int]) -> Depths:
        return tuple(i + self.shift for i in ids)

    def default_depths(self, n: int) -> Depths:
        """What feeds fc when no ids are given."""
        ids = self.default_ids(n)
        return self.depths(ids[: len(ids) - self.extra])


def _before(n: int) -> Depths:
    return (1, n // 2 - 1, n - 4)


PRODUCERS: dict[str, Producer] = {
    "SafeAILab": Producer(0, usual, "modeling_*_kv.py: before layer i, fixed"),
    "speculators <=0.4": Producer(
        1, lambda n: (2, n // 2, n - 3, n - 1), "custom_worker.py, vllm_hidden_states_generator.py: after layer i", 1
    ),
    "speculators >=0.5": Producer(
        0, lambda n: (2, n // 2, n - 3, n), "vLLM extract_hidden_states, scripts/launch_vllm.py", 1
    ),
    "SpecForge": Producer(1, _before, "after layer i, SGLang's +1"),
    "ModelOpt": Producer(1, _before, "after layer i"),
    "AngelSlim": Producer(1, _before, "after layer i"),
    "TorchSpec": Producer(1, _before, "after layer i"),
    "TorchSpec for vLLM": Producer(0, usual, "the exporter adds 1"),
    "NeMo": Producer(1, _before, "after layer i"),
}


def defaults_like(depths: Sequence[int], n: int) -> list[str]:
    """The producers whose default, for a target of `n` layers, is exactly `depths`."""
    return [name for name, producer in PRODUCERS.items() if producer.default_depths(n) == tuple(depths)]

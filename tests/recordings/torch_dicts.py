"""Tables of torch tensors as speculators v0, SpecForge, AngelSlim, BaldEagle and EAGLE save them.

Every writer returns what it wrote. State i is random around 10 * i, so that no two slots can be taken for each other.
T tokens, H width; the aux states come first, the last state, where there is one, comes last.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

T, H = 11, 6


@dataclass(frozen=True)
class Written:
    """`ids` and `mask` [T], `states` [n] of [T, H] in the order in which a reader must give them."""

    path: Path
    ids: list[int]
    mask: list[int]
    states: list[Tensor]

    @property
    def aux(self) -> Tensor:
        """[T, 3H]: the first three states side by side."""
        return torch.cat(self.states[:3], dim=1)


def text(path: Path, seed: int, states: int, tokens: int = T, dtype: torch.dtype = torch.bfloat16) -> Written:
    """A text that was not written yet; its first id is never 0, its last is supervised."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 97, (tokens,), generator=rng)
    ids[0] = 5
    mask = torch.randint(0, 2, (tokens,), generator=rng)
    mask[-1] = 1
    made = [(torch.randn(tokens, H, generator=rng) + 10 * i).to(dtype) for i in range(states)]
    return Written(path, ids.tolist(), mask.tolist(), made)


def save(path: Path, record: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """`record` with `changes`; a change to ... leaves the key out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({key: value for key, value in {**record, **changes}.items() if value is not ...}, path)


def speculators_v0(folder: Path, seed: int = 0, **changes: Any) -> Written:
    made = text(folder / "0/data_0.ckpt", seed, 4)
    record = {"input_ids": torch.tensor(made.ids), "loss_mask": torch.tensor(made.mask)}
    save(made.path, record | {"hidden_state": made.aux, "target": made.states[-1]}, changes)
    return made


def specforge(folder: Path, seed: int = 0, padding: int = 0, *, aux: bool = True, **changes: Any) -> Written:
    """`padding` rows after the text as a batch collator fills them: id 0, no supervision, states of the pad token."""
    made = text(folder / "rows_0-2000/data_0.ckpt", seed, 4)

    def padded(states: Tensor) -> Tensor:
        return torch.cat([states, torch.full((padding, states.shape[1]), 0.5).to(states.dtype)])[None]

    record: dict[str, Any] = {
        "input_ids": torch.tensor(made.ids + [0] * padding),
        "loss_mask": torch.tensor(made.mask + [0] * padding),
        "hidden_state": padded(made.states[-1]),
    }
    save(made.path, record | ({"aux_hidden_state": padded(made.aux)} if aux else {}), changes)
    return made if aux else Written(made.path, made.ids, made.mask, made.states[-1:])


def specforge_gz(folder: Path, seed: int = 0, padding: int = 3) -> Written:
    made = specforge(folder, seed, padding)
    path = made.path.with_name("data_0.ckpt.gz")
    path.write_bytes(gzip.compress(made.path.read_bytes(), 6))
    made.path.unlink()
    return Written(path, made.ids, made.mask, made.states)


def batch(texts: list[Written], states: Callable[[Written], Tensor]) -> Tensor:
    """[B, T, W], shorter texts filled up with ones."""
    longest = max(len(one.ids) for one in texts)
    rows = [states(one) for one in texts]
    return torch.stack([torch.cat([r, torch.ones(longest - len(r), r.shape[1]).to(r.dtype)]) for r in rows])


def numbers(texts: list[Written], values: Callable[[Written], list[int]]) -> Tensor:
    """[B, T], shorter texts filled up with zeros."""
    longest = max(len(one.ids) for one in texts)
    return torch.tensor([values(one) + [0] * (longest - len(one.ids)) for one in texts])


def specforge_debug(folder: Path, seed: int = 0, lengths: tuple[int, ...] = (T,), **changes: Any) -> list[Written]:
    path = folder / "run:0:17.ckpt"
    texts = [text(path, seed + i, 4, tokens) for i, tokens in enumerate(lengths)]
    record = {
        "input_ids": numbers(texts, lambda one: one.ids),
        "attention_mask": numbers(texts, lambda one: [1] * len(one.ids)),
        "loss_mask": numbers(texts, lambda one: one.mask),
        "hidden_state": batch(texts, lambda one: one.aux),
        "target": batch(texts, lambda one: one.states[-1]),
    }
    save(path, record, changes)
    return texts


def angelslim(folder: Path, seed: int = 0, texts: int = 1, **changes: Any) -> list[Written]:
    path = folder / "rows_0-5000/data_0.ckpt"
    made = [text(path, seed + i, 4) for i in range(texts)]
    record = {
        "input_ids": numbers(made, lambda one: one.ids),
        "loss_mask": numbers(made, lambda one: one.mask),
        "hidden_states": batch(made, lambda one: one.aux),
        "target_hiddens": batch(made, lambda one: one.states[-1]),
        "position_ids": None,
    }
    save(path, record, changes)
    return made


def states_only(folder: Path, seed: int = 0, states: int = 3, **changes: Any) -> Written:
    """AngelSlim's file for DFlash; SpecForge's has neither the attention mask nor, in some versions, the 1."""
    made = text(folder / "shard_00000/sample_00000007_r0.ckpt", seed, states)
    record = {
        "input_ids": torch.tensor([made.ids]),
        "attention_mask": torch.ones(1, T).long(),
        "loss_mask": torch.tensor([made.mask]),
        "hidden_states": torch.cat(made.states, dim=1)[None],
    }
    save(made.path, record, changes)
    return made


def eagle(folder: Path, seed: int = 0, **changes: Any) -> Written:
    made = text(folder / "0/data_0.ckpt", seed, 1, dtype=torch.float16)
    record = {"input_ids": torch.tensor(made.ids), "loss_mask": torch.tensor(made.mask)}
    save(made.path, record | {"hidden_state": made.states[0]}, changes)
    return made


def baldeagle(folder: Path, seed: int = 0, **changes: Any) -> Written:
    made = text(folder / "0/data_0.ckpt", seed, 3)
    record = {"input_ids": torch.tensor(made.ids), "loss_mask": torch.tensor(made.mask)}
    save(made.path, record | {"hidden_state": torch.stack(made.states)}, changes)
    return made


def baldeagle_3(folder: Path, seed: int = 0, **changes: Any) -> Written:
    """What its EAGLE-3 trainer reads."""
    made = text(folder / "0/data_0.ckpt", seed, 4)
    record = {"input_ids": torch.tensor(made.ids), "loss_mask": torch.tensor(made.mask)}
    save(made.path, record | {"hidden_state": made.aux[None], "target_hidden_states": made.states[-1][None]}, changes)
    return made


def speculators_v1(folder: Path, seed: int = 0, **changes: Any) -> Written:
    made = text(folder / "data_0.pt", seed, 4)
    record = {"input_ids": torch.tensor(made.ids), "loss_mask": torch.tensor(made.mask)}
    save(made.path, record | {"hidden_states": made.states}, changes)
    return made


def gzipped(path: Path, record: Any, level: int = 6) -> Path:
    """Any object as torch saves it, compressed as one stream."""
    plain = io.BytesIO()
    torch.save(record, plain)
    path.write_bytes(gzip.compress(plain.getvalue(), level))
    return path

"""Recordings of vLLM's connector, ModelOpt, TensorRT-LLM, NeMo, TorchSpec and SGLang, and of nobody in particular.

Each function writes one file from a seed, as its producer does, and returns what must be read from it. Nothing here
uses the readers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

WIDTH, AUX, VOCAB, DRAFT = 8, 3, 500, 11
UNKNOWN = -1


@dataclass(frozen=True)
class Text:
    """One recorded text: `aux` are n states [T, H], `last` is [T, H]."""

    ids: list[int]
    mask: list[bool]
    aux: tuple[Tensor, ...]
    last: Tensor

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def wide(self) -> Tensor:
        return torch.cat(self.aux, dim=1)  # [T, n * H]


@dataclass(frozen=True)
class Written:
    """What a file holds for sample `part`: slots in the order in which they must be read, `mask` None without one.

    `depths`, `lasts` and `norms` are what the layout says of each slot; `verifier` [T] are draft ids.
    """

    path: Path
    ids: list[int]
    mask: list[bool] | None
    slots: tuple[Tensor, ...]
    depths: tuple[int | None, ...]
    lasts: tuple[bool, ...]
    norms: tuple[str, ...]
    verifier: list[int] | None = None
    part: int = 0

    @property
    def name(self) -> Path:
        return self.path


def text(seed: int, tokens: int = 9, aux: int = AUX, dtype: torch.dtype = torch.bfloat16) -> Text:
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, VOCAB, (tokens,), generator=rng).tolist()
    mask = torch.randint(0, 2, (tokens,), generator=rng).bool()
    mask[-1] = True  # so that no tail looks like padding
    states = [torch.randn(tokens, WIDTH, generator=rng).to(dtype) for _ in range(aux + 1)]
    return Text(ids, mask.tolist(), tuple(states[:-1]), states[-1])


def written(path: Path, source: Text, norm: str = "", **changes: Any) -> Written:
    """Aux states of unknown depth, then the last state, whose norm is `norm`."""
    slots = (*source.aux, source.last)
    others = len(source.aux)
    lasts = (*[False] * others, True)
    norms = (*[""] * others, norm)
    base = Written(path, source.ids, source.mask, slots, (None,) * len(slots), lasts, norms)
    return replace(base, **changes)


def _save(path: Path, record: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(record, path)
    return path


def _long(values: Sequence[Any]) -> Tensor:
    return torch.tensor(values).long()


# --- vLLM's connector and float8


def connector(folder: Path, seed: int, name: str = "cmpl-8f3a-0.safetensors") -> Written:
    """vLLM's own file: [T, n, H] of the layers that were asked for, ids, no mask and no word about the layers."""
    source = text(seed)
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"hidden_states": torch.stack(source.aux, 1), "token_ids": _long(source.ids)}, path)
    nothing = (False,) * AUX
    return Written(path, source.ids, None, source.aux, (None,) * AUX, nothing, ("",) * AUX)


def float8(folder: Path, seed: int, scale_shape: str = "T11") -> Written:
    """The connector's file with float8 states and factors [T, 1, 1], [T, 1], [T] or [1]."""
    source = text(seed, dtype=torch.float32)
    states = torch.stack([*source.aux, source.last], 1)  # [T, n + 1, H]
    peak = states.abs().amax(dim=(1, 2)) if scale_shape != "1" else states.abs().max()[None]  # [T] or [1]
    factors = peak / 448
    stored = (states / factors[:, None, None]).to(torch.float8_e4m3fn)
    values = stored.float() * factors[:, None, None]
    shapes = {"T11": (-1, 1, 1), "T1": (-1, 1), "T": (-1,), "1": (-1,)}
    scales = factors.reshape(shapes[scale_shape])
    path = folder / "hs_4.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"hidden_states": stored, "hidden_states_scales": scales, "token_ids": _long(source.ids)}, path)
    count = AUX + 1
    slots = tuple(slot.contiguous() for slot in values.unbind(1))
    return Written(path, source.ids, None, slots, (None,) * count, (False,) * count, ("",) * count)


# --- ModelOpt and TensorRT-LLM

MODELOPT_ERAS = ("hf", "vllm", "vllm-list-ids", "trtllm", "prenorm", "postnorm", "no-mask", "no-aux")


def modelopt(folder: Path, seed: int, era: str) -> Written:
    source = text(seed)
    record: dict[str, Any] = {
        "input_ids": _long(source.ids),
        "hidden_states": source.last,
        "aux_hidden_states": source.wide,
        "loss_mask": _long(source.mask),
        "conversation_id": f"conversation-{seed}",
    }
    norm = "post"
    if era == "vllm-list-ids":
        record["input_ids"] = source.ids
    if era == "trtllm":
        record["hidden_state_features"] = record.pop("aux_hidden_states")
    if era in ("prenorm", "postnorm"):
        record["hidden_states_prenorm"] = era == "prenorm"
        norm = "pre" if era == "prenorm" else "post"
    if era in ("no-mask", "trtllm", "vllm-list-ids"):
        del record["loss_mask"]
    if era == "no-aux":
        record["aux_hidden_states"] = torch.empty(0)
        source = replace(source, aux=())
    path = _save(folder / f"conversation-{seed}.pt", record)
    return written(path, source, norm, mask=source.mask if "loss_mask" in record else None)


def tensorrt_llm(folder: Path, seeds: Sequence[int], key: str = "hidden_state_features") -> list[Written]:
    """One file with a request for each seed; with key "" the last state alone, with "with_last" among the others."""
    texts = [text(seed, tokens=6 + seed) for seed in seeds]
    if not key:
        texts = [replace(one, aux=()) for one in texts]
    records = []
    for number, one in enumerate(texts):
        record = {"id": number + 1, "input_ids": _long(one.ids), "hidden_state": one.last}
        if key == "with_last":
            record["hidden_state_features"] = torch.cat([one.wide, one.last], dim=1)
        elif key:
            record[key] = one.wide
        records.append(record)
    path = _save(folder / f"dp_0_{len(records)}.pt", records)
    return [written(path, one, "post", mask=None, part=i) for i, one in enumerate(texts)]


# --- NeMo


def nemo(
    folder: Path,
    seeds: Sequence[int],
    *,
    topk: int = 0,
    layer_ids: Sequence[int] | None = (1, 4, 9),
    embeddings: bool = False,
    version: Any = 2,
    padded: int = 16,
) -> list[Written]:
    """A shard with a sample for each seed, 5 + seed tokens of `padded`; everything but the states shifted by one."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text(seed, tokens=5 + seed) for seed in seeds]
    rng = torch.Generator().manual_seed(sum(seeds))
    logits = torch.randn(len(texts), padded, DRAFT, generator=rng)
    probs = logits.softmax(-1).bfloat16()
    fields: dict[str, list[Tensor]] = {}
    for one in texts:
        rest = padded - one.length
        row = {
            "input_ids": _long([*one.ids[1:], *[0] * rest, 0]),
            "loss_mask": _long([*one.mask[1:], *[0] * rest, 0]),
            "attention_mask": _long([1] * one.length + [0] * rest),
            "aux_hidden_states": torch.cat([one.wide, torch.randn(rest, AUX * WIDTH, generator=rng).bfloat16()]),
            "position_mask": torch.zeros(padded, 1, dtype=torch.bool),
        }
        for key, value in row.items():
            fields.setdefault(key, []).append(value)
    tensors = {key: torch.stack(values) for key, values in fields.items()}
    if topk:
        values, indices = torch.topk(probs.float(), topk, dim=-1)
        tensors |= {"target_probs_values": values.bfloat16(), "target_probs_indices": indices.int()}
    else:
        tensors["target_probs"] = probs
    save_file(tensors, folder / "shard-000000.safetensors")
    if layer_ids is not None:
        manifest = {"format_version": version, "aux_layer_ids": list(layer_ids), "draft_vocab_size": DRAFT}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    if embeddings:
        save_file({"weight": torch.zeros(VOCAB, WIDTH)}, folder / "target_embeddings.safetensors")
    depths = tuple(i + 1 for i in layer_ids) if layer_ids is not None else (None,) * AUX
    out = []
    for part, one in enumerate(texts):
        choices = [_first_best(probs[part, t - 1].tolist()) for t in range(1, one.length)]
        out.append(
            Written(
                folder / "shard-000000.safetensors",
                [UNKNOWN, *one.ids[1:]],
                [False, *one.mask[1:]],
                one.aux,
                depths,
                (False,) * AUX,
                ("",) * AUX,
                [UNKNOWN, *choices],
                part,
            )
        )
    return out


def _first_best(numbers: list[float]) -> int:
    best = 0
    for i, number in enumerate(numbers):
        if number > numbers[best]:
            best = i
    return best


# --- TorchSpec


def torchspec(
    folder: Path, seeds: Sequence[int], *, last: bool = True, outside: bool = False, prenorm: bool | None = None
) -> list[Written]:
    """A debug dump of one batch, padded to its longest text; `outside` puts the states beside the batch."""
    texts = [text(seed, tokens=5 + seed) for seed in seeds]
    longest = max(one.length for one in texts)

    def pad(rows: Tensor) -> Tensor:
        return torch.cat([rows, torch.zeros(longest - rows.shape[0], *rows.shape[1:], dtype=rows.dtype)])

    batch: dict[str, Any] = {
        "input_ids": torch.stack([pad(_long(one.ids)) for one in texts]),
        "attention_mask": torch.stack([pad(torch.ones(one.length).long()) for one in texts]),
        "loss_mask": torch.stack([pad(_long(one.mask)) for one in texts])[..., None],
        "target": None,
    }
    states: dict[str, Any] = {"hidden_states": torch.stack([pad(one.wide) for one in texts])}
    if last:
        states["last_hidden_states"] = torch.stack([pad(one.last) for one in texts])
    if prenorm is not None:
        batch["last_hidden_states_prenorm"] = prenorm
    record = {"step": 1, "batch_idx": 0, "rank": 0, "batch": batch, "plosses": [torch.tensor(2.0)]}
    (record if outside else batch).update(states)
    path = _save(folder / "1/0/0.pt", record)
    norm = "" if prenorm is None else "pre" if prenorm else "post"
    out = [written(path, one, norm, part=i) for i, one in enumerate(texts)]
    return out if last else [_without_last(one) for one in out]


def _without_last(one: Written) -> Written:
    cut = {name: getattr(one, name)[:-1] for name in ("slots", "depths", "lasts", "norms")}
    return replace(one, **cut)


def torchspec_offline(folder: Path, seed: int, prenorm: bool | None = True, last: bool = True) -> Written:
    source = text(seed)
    record: dict[str, Any] = {
        "input_ids": _long([source.ids]),
        "hidden_states": source.wide[None],
        "data_id": f"d{seed}",
        "packed_loss_mask": run_lengths(source.mask),
        "metadata": {},
    }
    if last:
        record["last_hidden_states"] = source.last[None]
    path = _save(folder / f"samples/{seed:040x}.pt", record)
    said = {"version": 1, "last_hidden_states_prenorm": prenorm}
    (folder / "dataset.json").write_text(json.dumps(said))
    norm = "" if prenorm is None else "pre" if prenorm else "post"
    out = written(path, source, norm)
    return out if last else _without_last(out)


def run_lengths(mask: Sequence[bool]) -> str:
    lengths, value = [0], False
    for entry in mask:
        if entry != value:
            lengths, value = [*lengths, 0], entry
        lengths[-1] += 1
    return ",".join(map(str, lengths))


# --- SGLang


def sglang(folder: Path, seeds: Sequence[int], *, hooks: str = "leaves", cached: int = 0) -> list[Written]:
    """One prefill of a request for each seed, packed. A three-layer target; `cached` tokens of each are left out.

    `leaves` is what SGLang records: modules without children, where the norm before a layer puts out
    [normed, residual]. `layers` records whole layers as [hidden, residual], as patched hooks do.
    """
    texts = [text(seed, tokens=5 + seed, aux=5) for seed in seeds]
    layer_count = 3

    def packed(rows: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(rows))

    streams = [packed([one.aux[d] for one in texts]) for d in range(layer_count)]  # depths 0, 1, 2
    normed = packed([one.aux[4] for one in texts])
    final, residual = packed([one.last for one in texts]), packed([one.aux[3] for one in texts])
    record: dict[str, Any] = {
        "logits_processor": torch.randn(len(texts), VOCAB),
        "model": packed([one.aux[4] for one in texts]),
        "model.embed_tokens": streams[0],
        "model.norm": [final, residual],
    }
    if hooks == "leaves":
        record["model.layers.0.input_layernorm"] = normed
        for depth in (1, 2):
            record[f"model.layers.{depth}.input_layernorm"] = [normed, streams[depth]]
            record[f"model.layers.{depth}.mlp.down_proj"] = normed
        found = streams
    else:
        for layer in range(layer_count):
            record[f"model.layers.{layer}"] = [normed, packed([one.aux[layer] for one in texts])]
        found = [streams[0], *[normed + stream for stream in streams]]
    ids = [token for one in texts for token in one.ids]
    record["model.forward_batch_info.input_ids"] = _long(ids)
    record["model.forward_batch_info.seq_lens"] = _long([one.length + cached for one in texts])
    record["model.forward_batch_info.positions"] = _long([cached + i for one in texts for i in range(one.length)])
    path = _save(folder / "TP0_PP0_Rank0_pid7/Pass00001.pt", record)
    out, start = [], 0
    for part, one in enumerate(texts):
        rows = slice(start, start + one.length)
        slots = tuple(stream[rows] for stream in [*found, final])
        depths = (*range(len(found)), None)
        lasts = (*[False] * len(found), True)
        norms = (*[""] * len(found), "post")
        out.append(Written(path, one.ids, None, slots, depths, lasts, norms, None, part))
        start += one.length
    return out


# --- nobody's


def table(folder: Path, seed: int, container: str = "npz", ids: str = "tokens") -> Written:
    """A table of a user's own: ids, a mask, states [T, H] named layer_2, layer_10, final, in float32."""
    source = text(seed, aux=2, dtype=torch.float32)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"layer_10": source.aux[1], "final": source.last, "layer_2": source.aux[0]}
    tensors |= {ids: _long(source.ids), "loss_mask": _long(source.mask)}
    path = folder / f"mine.{container}"
    if container == "safetensors":
        save_file(tensors, path)
    elif container == "pt":
        torch.save(tensors, path)
    else:
        save = np.savez_compressed if container == "npz-deflated" else np.savez
        path = folder / "mine.npz"
        save(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    nothing = (None, None, None), (False,) * 3, ("",) * 3
    slots = (source.last, source.aux[0], source.aux[1])  # natural order of the names
    return Written(path, source.ids, source.mask, slots, *nothing)

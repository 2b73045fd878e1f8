"""What an animal is, and the ways to write one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests import tiny
from tests.reference import ReferenceDrafter
from tests.tiny import SIZES, Sizes

Tensors = dict[str, Tensor]
Config = Callable[[Tensors, Sizes], dict[str, Any]]
Write = Callable[[Path, Tensors, str], None]
TOKENS = 12


@dataclass(frozen=True)
class Animal:
    """One checkpoint. `make`: options of `tiny_weights`; `rename`: canonical name -> written name; `drop`: the
    beginnings of canonical names that are not written; `store`: canonical tensors -> written ones with their values
    (for what is not simply cast); `beside`: writes other files; `switches`: what the reference is told;
    `target`: a target folder must be given; `fields`: config fields and their expected values; `producer`: a word
    that the product's own name of it must contain; `opens`: what of the folder the user names.
    """

    name: str
    producer: str
    config: Config
    sizes: Sizes = SIZES
    make: Mapping[str, Any] = field(default_factory=dict)
    rename: Callable[[str], str] = lambda name: name
    drop: tuple[str, ...] = ("embed_tokens",)
    write_weights: Write = None  # type: ignore[assignment]  # single_safetensors, set below
    dtype: torch.dtype = torch.bfloat16
    store: Callable[[Tensors], tuple[Tensors, Tensors]] | None = None
    beside: Callable[[Path], None] | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)
    head: str = "own"
    fields: Mapping[str, Any] = field(default_factory=dict)
    warns: tuple[str, ...] = ()
    seed: int = 0
    side_map: bool = False
    opens: str = ""

    @property
    def dialects(self) -> set[str]:
        """The dialects that it may be read as: what nothing marks as SpecForge's is anyone's flat config."""
        known = {"sglang": {"flat"}, "specforge": {"flat", "specforge"}, "tensorrt": {"modelopt"}}
        return known.get(self.producer, {self.producer})

    @property
    def needs_target(self) -> bool:
        return "embed_tokens" in self.drop or self.head != "own"

    def tensors(self) -> tuple[Tensors, Tensors]:
        """What is written, under canonical names; and what a reader must make of it, in float32."""
        made = tiny.tiny_weights(self.seed, self.sizes, **self.make)
        if self.store is not None:
            return self.store(made)
        written = {k: t.to(self.dtype) if t.is_floating_point() else t for k, t in made.items()}
        lacking = tuple(name for name in self.drop if name not in ("embed_tokens", "lm_head"))
        read = {k: t.float() if t.is_floating_point() else t for k, t in written.items() if k not in lacking}
        return written, read

    def write(self, folder: Path) -> Path:
        """The folder to open."""
        folder.mkdir(parents=True, exist_ok=True)
        written, _ = self.tensors()
        (folder / "config.json").write_text(json.dumps(self.config(written, self.sizes), indent=2))
        kept = {k: t for k, t in written.items() if not k.startswith(self.drop)}
        named = {self.rename(k): t.clone().contiguous() for k, t in kept.items()}
        assert len(named) == len(kept), "two tensors under one name"
        (self.write_weights or single_safetensors)(folder, named, "pt")
        if self.beside is not None:
            self.beside(folder)
        return folder / self.opens if self.opens else folder

    def reference(self) -> ReferenceDrafter:
        _, weights = self.tensors()
        if self.head in ("target", "target, tied"):
            target = tiny.target_weights(weights, self.sizes)
            rows = target["lm_head.weight" if self.head == "target" else "model.embed_tokens.weight"]
            weights["lm_head.weight"] = rows[self.target_ids()]
        return tiny.reference(weights, self.sizes, **self.switches)

    def target_ids(self) -> Tensor:
        """[D]: the target id of each draft id."""
        made = tiny.tiny_weights(self.seed, self.sizes, **self.make)
        if self.make.get("d2t") == "direct":
            return made["d2t"]
        ids = torch.arange(self.sizes.draft_vocab)
        return ids + made["d2t"] if "d2t" in made and ("d2t" not in self.drop or self.side_map) else ids

    def sample(self) -> tiny.TinySample:
        """One state more than feed fc, at depths 0, 1, 2, ..."""
        weights = tiny.tiny_weights(self.seed, self.sizes, **self.make)
        depths = range(self.sizes.states + 1)
        return tiny.tiny_sample(self.seed + 1, weights, self.sizes, tokens=TOKENS, depths=depths)


# --- names


def midlayer(name: str) -> str:
    return name.replace("layers.0.", "midlayer.")


def deep(name: str) -> str:
    """Megatron, TensorRT-LLM: every layer is a midlayer; layers above the first norm their input by hidden_norm."""
    name = name.replace("layers.", "midlayer.")
    return name if name.startswith("midlayer.0.") else name.replace("input_layernorm", "hidden_norm")


def sglang_deep(name: str) -> str:
    above = name.startswith("layers.") and not name.startswith("layers.0.")
    return name.replace("input_layernorm", "hidden_norm") if above else midlayer(name)


def prefixed(prefix: str, rename: Callable[[str], str] = lambda name: name) -> Callable[[str], str]:
    return lambda name: prefix + rename(name)


def nemo_names(name: str) -> str:
    return name if name.split(".")[0] in ("lm_head", "d2t", "t2d", "mask_hidden") else f"model.{name}"


def aux_norms(name: str) -> str:
    words = {f"fc_norm.{i}.": f"aux_norm_{word}." for i, word in enumerate(("low", "mid", "high"))}
    for plain, word in words.items():
        name = name.replace(plain, word)
    return midlayer(name)


# --- containers


def single_safetensors(folder: Path, tensors: Tensors, form: str) -> None:
    save_file(tensors, folder / "model.safetensors", metadata={"format": form})


def with_metadata(**metadata: str) -> Write:
    def write(folder: Path, tensors: Tensors, _form: str) -> None:
        save_file(tensors, folder / "model.safetensors", metadata=metadata)

    return write


def torch_bin(folder: Path, tensors: Tensors, _form: str) -> None:
    torch.save(tensors, folder / "pytorch_model.bin")


def legacy_bin(folder: Path, tensors: Tensors, _form: str) -> None:
    """As torch wrote before 1.6: no zip."""
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def sharded(folder: Path, tensors: Tensors, form: str) -> None:
    names = sorted(tensors)
    half = len(names) // 2
    weight_map = {}
    for i, part in enumerate((names[:half], names[half:]), 1):
        file = f"model-{i:05d}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": form})
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def sharded_bin(folder: Path, tensors: Tensors, _form: str) -> None:
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2]), 1):
        file = f"pytorch_model-{i:05d}-of-00002.bin"
        torch.save({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def training_state(folder: Path, tensors: Tensors, _form: str) -> None:
    """SpecForge 0.2.0's own checkpoint; its keys beside the weights are those that resuming needs."""
    state = {
        "draft_state_dict": tensors,
        "global_step": 120,
        "epoch": 1,
        "epoch_batch": 4,
        "epoch_samples": 480,
        "strategy": "eagle3",
        "run_id": "tiny",
        "world_size": 1,
    }
    torch.save(state, folder / "training_state.pt")


# --- tensors that are not simply cast


def fused(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """q, k, v in one matrix, and gate and up in one."""
    out = {k: t.bfloat16() if t.is_floating_point() else t for k, t in tensors.items()}
    read = {k: t.float() if t.is_floating_point() else t for k, t in out.items()}
    qkv = [out.pop(f"layers.0.self_attn.{n}_proj.weight") for n in "qkv"]
    out["layers.0.self_attn.qkv_proj.weight"] = torch.cat(qkv)
    pair = [out.pop(f"layers.0.mlp.{n}_proj.weight") for n in ("gate", "up")]
    out["layers.0.mlp.gate_up_proj.weight"] = torch.cat(pair)
    return out, read


def beside_them(*shapes: tuple[str, int, int]) -> Callable[[Tensors], tuple[Tensors, Tensors]]:
    """Tensors that a trainer or an old library leaves in the file and that no forward needs."""

    def store(tensors: Tensors) -> tuple[Tensors, Tensors]:
        out = {k: t.bfloat16() if t.is_floating_point() else t for k, t in tensors.items()}
        read = {k: t.float() if t.is_floating_point() else t for k, t in out.items()}
        more = {name: torch.full((rows, columns) if columns else (rows,), 0.5) for name, rows, columns in shapes}
        return out | more, read

    return store


def whole_numbers(tensors: Tensors) -> tuple[Tensors, Tensors]:
    """The vocabulary map in other integer types: TensorRT-LLM reads int32, some masks are uint8."""
    out = {k: t.bfloat16() if t.is_floating_point() else t for k, t in tensors.items()}
    out["d2t"], out["t2d"] = out["d2t"].int(), out["t2d"].to(torch.uint8)
    return out, {k: t.float() if t.is_floating_point() else t for k, t in out.items()}


def float8(per_row: bool) -> Callable[[Tensors], tuple[Tensors, Tensors]]:
    """The projections of the layer as float8 with a scale for each tensor or each row: value = stored * scale."""

    def store(tensors: Tensors) -> tuple[Tensors, Tensors]:
        out: Tensors = {}
        read: Tensors = {}
        for name, t in tensors.items():
            if name.endswith("_proj.weight"):
                largest = t.abs().amax(1, keepdim=True) if per_row else t.abs().max()
                scale = largest / 448.0
                out[name] = (t / scale).to(torch.float8_e4m3fn)
                read[name] = out[name].float() * scale
                out[name.replace(".weight", ".weight_scale")] = scale
                if not per_row:
                    out[name.replace(".weight", ".input_scale")] = torch.tensor(1.0)
            else:
                out[name] = t.bfloat16() if t.is_floating_point() else t
                read[name] = out[name].float() if t.is_floating_point() else t
        return out, read

    return store

"""One fault at a time in files that are whole: each is a function that breaks a folder, with what must be found.

The drafter is `tiny`'s, with matrices whose rows and columns differ as training leaves them. Nothing here is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests import tiny
from tests.reference import Latent
from tests.tiny import Sizes

SIZES = Sizes(hidden=64, heads=4, kv_heads=2, head_dim=16, mlp=96, vocab=300, draft_vocab=160, target_layers=12)
TWO = replace(SIZES, layers=2)
Tensors = dict[str, Tensor]
Edit = Callable[[Tensors], None]


@dataclass(frozen=True)
class Fault:
    """`breaks` is called with the folder of a whole checkpoint, `breaks_target` with that of its target.

    Expected: a finding of `check` and `severity` whose title and evidence hold `words`, and a fix that holds `fix`.
    `also` are further errors that are right as well; `starts` makes another whole one first.
    """

    name: str
    check: str
    severity: str
    breaks: Callable[[Path], None]
    words: tuple[str, ...] = ()
    fix: str = ""
    kind: str = ""
    also: tuple[str, ...] = ()
    nested: bool = False
    sizes: Sizes = SIZES
    make: Mapping[str, Any] = field(default_factory=dict)
    layer_ids: tuple[int, ...] | None = (1, 5, 8)
    starts: Callable[[Path], None] = lambda folder: None
    breaks_target: Callable[[Path], None] = lambda folder: None


def trained(weights: Tensors, seed: int = 3) -> Tensors:
    """`weights` with matrices whose rows and columns have norms of their own, as training leaves them."""
    rng = torch.Generator().manual_seed(seed)
    out = dict(weights)
    for name, t in weights.items():
        if t.dim() == 2:
            rows, columns = (torch.exp(0.4 * torch.randn(n, generator=rng)) for n in t.shape)
            out[name] = (t * rows[:, None] * columns).bfloat16().float()
    return out


def whole(folder: Path, fault: Fault) -> Path:
    """The checkpoint before it is broken."""
    weights = trained(tiny.tiny_weights(0, fault.sizes, **fault.make))
    if fault.nested:
        ids = None if fault.layer_ids is None else tuple(i + 1 for i in fault.layer_ids)
        return tiny.write_nested(folder, weights, fault.sizes, layer_ids=ids)
    tiny.write_flat(folder, weights, fault.sizes, layer_ids=fault.layer_ids, embed=True)
    fault.starts(folder)
    return folder


def target(folder: Path, fault: Fault) -> Path:
    """Its target: 12 layers, the same RoPE."""
    weights = trained(tiny.tiny_weights(0, fault.sizes, **fault.make))
    return tiny.write_target(folder, weights, fault.sizes)


# --- ways to break


def config(**changes: Any) -> Callable[[Path], None]:
    """Overwrite keys of config.json, dotted with two underscores; `...` removes one."""

    def breaks(folder: Path) -> None:
        table = json.loads((folder / "config.json").read_text())
        for key, value in changes.items():
            *parts, last = key.split("__")
            inner = table
            for part in parts:
                inner = inner[part]
            inner[last] = value
            if value is ...:
                del inner[last]
        (folder / "config.json").write_text(json.dumps(table))

    return breaks


def weights(edit: Edit) -> Callable[[Path], None]:
    """Change the written tensors in place."""

    def breaks(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        edit(tensors)
        save_file({name: t.clone().contiguous() for name, t in tensors.items()}, folder / "model.safetensors")

    return breaks


def both(*ways: Callable[[Path], None]) -> Callable[[Path], None]:
    def breaks(folder: Path) -> None:
        for way in ways:
            way(folder)

    return breaks


def put(name: str, make: Callable[[Tensor], Tensor]) -> Edit:
    def edit(tensors: Tensors) -> None:
        tensors[name] = make(tensors[name])

    return edit


def drop(*names: str) -> Edit:
    def edit(tensors: Tensors) -> None:
        for name in names:
            del tensors[name]

    return edit


def noise(std: float) -> Callable[[Tensor], Tensor]:
    def make(t: Tensor) -> Tensor:
        return (torch.randn(t.shape, generator=torch.Generator().manual_seed(9)) * std).to(t.dtype)

    return make


def zeros(first: int, end: int) -> Callable[[Tensor], Tensor]:
    """These rows zero."""

    def make(t: Tensor) -> Tensor:
        t = t.clone()
        t[first:end] = 0
        return t

    return make


def three_at_once(tensors: Tensors) -> None:
    del tensors["norm.weight"]
    tensors["midlayer.self_attn.spare.weight"] = torch.zeros(3)
    tensors["fc.weight"] = tensors["fc.weight"].T


def one_nan(t: Tensor) -> Tensor:
    t = t.clone()
    t[3, 5] = float("nan")
    return t


def second_reading(t: Tensor) -> Tensor:
    return t + torch.arange(t.numel())


def past_the_end(t: Tensor) -> Tensor:
    t = t.clone()
    t[-1] = SIZES.vocab - (t.numel() - 1)  # one past the last id
    return t


def repeated(t: Tensor) -> Tensor:
    t = t.clone()
    t[10] = t[11] + 1
    return t


def fewer_marks(t: Tensor) -> Tensor:
    t = t.clone()
    t[t.nonzero()[:7, 0]] = False
    return t


def norm(width: int) -> Tensor:
    return 1 + 0.3 * torch.randn(width, generator=torch.Generator().manual_seed(1))


def add_input_norm(tensors: Tensors) -> None:
    tensors["input_norm.weight"] = norm(3 * SIZES.hidden).bfloat16()


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 1000])


def trainer_folder(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "draft_model.pt")
    torch.save({"draft_vocab_size": 160}, folder / "eagle_meta.pt")
    (folder / "model.safetensors").unlink()
    (folder / "config.json").unlink()


def training_config(**changes: Any) -> Callable[[Path], None]:
    """The nested config of training beside config.json, of the same drafter but for `changes`."""

    def breaks(folder: Path) -> None:
        made = {name: t.float() for name, t in load_file(folder / "model.safetensors").items()}
        table = tiny.nested_config(made, SIZES, layer_ids=(2, 6, 9)) | changes
        (folder / "config_speculators.json").write_text(json.dumps(table))

    return breaks


def side_file(folder: Path) -> None:
    import numpy

    tensors = load_file(folder / "model.safetensors")
    numpy.save(folder / "d2t.npy", tensors.pop("d2t").numpy())
    numpy.save(folder / "t2d.npy", tensors.pop("t2d").numpy())
    save_file(tensors, folder / "model.safetensors")


def missing_shard(folder: Path) -> None:
    names = list(load_file(folder / "model.safetensors"))
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00002.safetensors")}
    index["weight_map"][names[-1]] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def latent(model_type: str) -> Callable[[Path], None]:
    """The sizes of latent attention, under that model_type."""
    sizes = {"kv_lora_rank": 24, "q_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10}
    return config(**sizes, model_type=model_type)


def other_rows(at: Callable[[Tensor], Tensor]) -> Callable[[Path], None]:
    """lm_head cut out of the target's head at `at`(d2t)."""

    def breaks(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        head = load_file(folder.parent / "target/model.safetensors")["lm_head.weight"]
        save_file(tensors | {"lm_head.weight": head[at(tensors["d2t"])].clone()}, folder / "model.safetensors")

    return breaks


def vision_tower(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    more = {"visual.embed_tokens.weight": torch.zeros(20, 64)}
    save_file({**tensors, **more}, folder / "model.safetensors")


def as_it_is(folder: Path) -> None:
    """Of faults that are the target's alone."""


def second_file(folder: Path) -> None:
    save_file({"optimizer.state": torch.zeros(4)}, folder / "extra.safetensors")


NESTED_IDS = "eagle_config__eagle_aux_hidden_state_layer_ids"
FC = "fc.weight"
Q = "midlayer.self_attn.q_proj.weight"

FAULTS: tuple[Fault, ...] = (
    # --- K01
    Fault(
        "configs_name_other_layers",
        "layer-ids-differ",
        "error",
        both(config(**{NESTED_IDS: [2, 6, 9]}), training_config()),
        ("3, 7, 10", "2, 6, 9"),
        "eagle_config.eagle_aux_hidden_state_layer_ids = [1, 5, 8]",
    ),
    Fault("no_ids", "layer-ids", "note", config(**{NESTED_IDS: ...}), ("no layer ids", "2, 6, 9"), "[2, 6, 9]"),
    Fault("empty_ids", "layer-ids", "error", config(**{NESTED_IDS: []}), ("empty",)),
    Fault("repeated_ids", "layer-ids", "error", config(**{NESTED_IDS: [1, 1, 1]}), ("more than once",)),
    Fault("four_ids", "layer-ids", "error", config(**{NESTED_IDS: [1, 5, 8, 9]}), ("4 layer ids", "3 states")),
    Fault("unsorted_ids", "layer-ids", "warning", config(**{NESTED_IDS: [8, 1, 5]}), ("not ascending",), "fix"),
    Fault("ids_past_the_end", "layer-ids-range", "error", config(**{NESTED_IDS: [4, 8, 13]}), ("13", "12")),
    Fault("id_of_the_boundary", "layer-ids-range", "error", config(**{NESTED_IDS: [4, 8, 12]}), ("12", "past")),
    Fault("id_of_the_last_layer", "layer-ids-range", "note", config(**{NESTED_IDS: [4, 8, 11]}), ("last layer",)),
    Fault(
        "ids_in_vllms_numbering", "id-convention", "warning", config(**{NESTED_IDS: [2, 6, 9]}), ("vLLM",), "[1, 5, 8]"
    ),
    Fault("one_id_off", "id-convention", "note", config(**{NESTED_IDS: [1, 6, 8]}), ("one off", "2, 6, 9")),
    Fault(
        "two_lists",
        "two-lists",
        "note",
        config(eagle_aux_hidden_state_layer_ids=[1, 5, 8]),
        ("vLLM capture depths 1, 5, 8", "SGLang capture 2, 6, 9"),
        "[2, 6, 9]",
    ),
    # --- K02
    Fault(
        "tensor_lost",
        "tensors-missing",
        "error",
        weights(drop("midlayer.hidden_norm.weight")),
        ("midlayer.hidden_norm.weight is missing", "leave it at ones"),
        "rename it: midlayer.hidden_norm.weight",
    ),
    Fault(
        "matrix_lost",
        "tensors-missing",
        "error",
        weights(drop("midlayer.mlp.up_proj.weight", "norm.weight")),
        ("and 1 more are missing", "leave norms at ones and matrices unfilled"),
        "midlayer.mlp.up_proj.weight",
    ),
    Fault(
        "name_changed",
        "tensors-unused",
        "warning",
        weights(lambda t: t.update({"midlayer.mlp.gate.weight": t.pop("midlayer.mlp.gate_proj.weight")})),
        ("mlp.gate.weight",),
        also=("tensors-missing",),
    ),
    Fault(
        "filled_with_initial_values",
        "untrained",
        "error",
        weights(put("midlayer.mlp.up_proj.weight", noise(0.02))),
        ("midlayer.mlp.up_proj.weight looks untrained", "N(0, 0.02)"),
        "name",
    ),
    Fault("zero_matrix", "untrained", "error", weights(put(FC, torch.zeros_like)), ("fc.weight is zero",)),
    Fault(
        "one_query_head_of_zeros",
        "rows-of-zeros",
        "warning",
        weights(put(Q, zeros(16, 32))),
        ("rows 16-31 of midlayer.self_attn.q_proj.weight are all zero", "head 1 of 4, counted from 0"),
        "earlier epoch",
    ),
    Fault(
        "a_column_block_of_fc_of_zeros",
        "rows-of-zeros",
        "warning",
        weights(put(FC, lambda t: zeros(64, 128)(t.T).T)),
        ("columns 64-127 of fc.weight", "nothing of input 1 of fc is used"),
    ),
    Fault(
        "rows_of_the_head_of_zeros",
        "rows-of-zeros",
        "warning",
        weights(put("lm_head.weight", zeros(40, 60))),
        ("rows 40-59 of lm_head.weight",),
    ),
    Fault(
        "one_neuron_of_zeros",
        "rows-of-zeros",
        "note",
        weights(put("midlayer.mlp.up_proj.weight", zeros(5, 6))),
        ("rows 5 of midlayer.mlp.up_proj.weight",),
    ),
    Fault("norm_of_ones", "untrained", "warning", weights(put("norm.weight", torch.ones_like)), ("norm.weight",)),
    Fault(
        "never_trained",
        "untrained",
        "error",
        weights(
            lambda t: t.update(
                {n: noise(0.02)(x) if x.dim() == 2 else torch.ones_like(x) for n, x in t.items() if "weight" in n}
            )
        ),
        ("never trained",),
        also=("head-rows",),
    ),
    Fault(
        "random_embedding",
        "embedding-of-target",
        "warning",
        weights(put("embed_tokens.weight", noise(1.0))),
        ("nothing to do",),
        also=("untrained",),
    ),
    Fault(
        "half_an_embedding",
        "embedding-of-target",
        "warning",
        weights(put("embed_tokens.weight", lambda t: torch.cat([noise(1.0)(t[:150]), t[150:]]))),
        ("part of the embedding",),
    ),
    Fault(
        "no_head_of_a_part",
        "head-missing",
        "error",
        weights(drop("lm_head.weight")),
        ("160 of 300", "no server takes the target's rows"),
        "lm_head.weight = the rows of the target's lm_head at the mapped ids (arange(160) + d2t), [160, 64]",
    ),
    Fault(
        "head_of_the_first_rows",
        "head-rows",
        "error",
        other_rows(lambda d2t: torch.arange(len(d2t))),
        ("the first rows",),
        "d2t",
    ),
    Fault("head_at_the_offsets", "head-rows", "error", other_rows(lambda d2t: d2t), ("the offsets d2t",), "d2t"),
    Fault(
        "two_embeddings_in_the_target",
        "target-embeddings",
        "note",
        as_it_is,
        ("model.embed_tokens.weight fits", "visual"),
        breaks_target=vision_tower,
    ),
    Fault(
        "two_layers_one_configured",
        "layers-count",
        "error",
        config(num_hidden_layers=1),
        ("2 layers", "says 1"),
        "num_hidden_layers = 2",
        sizes=TWO,
    ),
    Fault(
        "targets_number_of_layers",
        "layers-count",
        "error",
        config(num_hidden_layers=48),
        ("48",),
        "num_hidden_layers = 1",
        "K04",
    ),
    Fault(
        "three_faults_at_once",
        "shapes",
        "error",
        weights(three_at_once),
        ("transposed", "norm.weight", "midlayer.self_attn.spare"),
        also=("opens",),
    ),
    # --- K03
    Fault("direct_map", "vocab-map-is-direct", "error", weights(put("d2t", second_reading)), ("target ids",), "arange"),
    Fault("no_map", "vocab-map-missing", "error", weights(drop("d2t", "t2d")), ("160 rows", "300"), "d2t"),
    Fault("map_in_a_side_file", "vocab-map-missing", "error", side_file, ("d2t.npy",), "d2t.npy"),
    Fault("map_past_the_end", "vocab-map-range", "error", weights(put("d2t", past_the_end)), ("159", "300"), "map"),
    Fault("map_repeats", "vocab-map-stale", "error", weights(put("d2t", repeated)), ("repeated",), "map"),
    Fault("map_never_set", "vocab-map-unset", "error", weights(put("d2t", torch.zeros_like)), ("never set",), "t2d"),
    Fault(
        "map_of_zeros_alone",
        "vocab-map-unset",
        "warning",
        weights(lambda t: t.update({"d2t": torch.zeros_like(t["d2t"]), "t2d": t.pop("t2d")}) or t.pop("t2d")),  # type: ignore[func-returns-value]
        ("all zeros",),
    ),
    Fault("fewer_marks", "vocab-counts", "error", weights(put("t2d", fewer_marks)), ("153",), "t2d"),
    Fault("other_draft_size", "vocab-counts", "error", config(draft_vocab_size=200), ("200", "160"), "= 160"),
    Fault(
        "vocab_size_of_the_draft",
        "vocab-counts",
        "error",
        config(vocab_size=160),
        ("300", "160"),
        "vocab_size = 300",
    ),
    Fault(
        "vocab_size_of_the_draft_nested",
        "vocab-counts",
        "error",
        config(transformer_layer_config__vocab_size=160),
        ("transformer_layer_config.vocab_size is 160", "it is 300 by the length of t2d"),
        "config.json: transformer_layer_config.vocab_size = 300",
        nested=True,
    ),
    Fault("tied", "tied-head", "error", config(tie_word_embeddings=True), ("SGLang drops",), "= false"),
    # --- K04
    Fault(
        "configs_differ",
        "two-configs",
        "error",
        both(training_config(norm_before_residual=True), config(norm_before_residual=False)),
        ("norm_before_residual", "true", "false"),
        "norm_before_residual = true",
        "K05",
    ),
    Fault(
        "targets_class",
        "architecture",
        "error",
        config(architectures=["Qwen3ForCausalLM"]),
        ("Qwen3ForCausalLM",),
        "LlamaForCausalLMEagle3",
    ),
    Fault(
        "latent_attention_unsaid",
        "attention-kind",
        "error",
        latent("llama"),
        ("llama", "plain attention"),
        "model_type",
        sizes=replace(SIZES, latent=Latent(nope=12, rope=8, value=10, kv_rank=24), query_rank=20, kv_heads=4),
        starts=latent("deepseek_v3"),
    ),
    Fault("latent_sizes_alone", "attention-kind", "warning", latent("llama"), ("ordinary",), "kv_lora_rank"),
    Fault("null", "nulls", "error", config(use_cache=None), ("use_cache",), "use_cache"),
    # --- K05
    Fault(
        "norm_without_flag", "norm-flags", "error", weights(add_input_norm), ("input_norm", "not set"), "norm_before_fc"
    ),
    Fault(
        "flag_without_norm",
        "norm-flags",
        "error",
        config(norm_before_fc=True),
        ("input_norm", "not in the weights"),
        "norm_before_fc = false",
        also=("tensors-missing",),
    ),
    # --- K06
    Fault(
        "schemas_disagree",
        "rope-schemas",
        "error",
        config(rope_parameters={"rope_theta": 1e6, "rope_type": "default"}),
        ("1e+06", "50000"),
        "rope_parameters",
        also=(),
    ),
    Fault(
        "yarn_in_the_new_schema_alone",
        "rope-schemas",
        "note",
        config(
            rope_theta=...,
            rope_scaling=...,
            rope_parameters={
                "rope_theta": 50000.0,
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        ),
        ("only rope_parameters", "yarn"),
        "rope_scaling",
    ),
    Fault("base_of_another", "rope-of-target", "warning", config(rope_theta=1e6), ("1e+06", "50000")),
    Fault(
        "rope_by_layer_type",
        "rope-schemas",
        "note",
        config(
            transformer_layer_config__rope_parameters={
                "full_attention": {"rope_theta": 50000.0, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 50000.0, "rope_type": "default"},
            }
        ),
        ("by layer type", "sliding_attention"),
        nested=True,
    ),
    Fault(
        "leftover_of_another_base",
        "rope-trained",
        "warning",
        weights(lambda t: t.update({"rotary_emb.inv_freq": 10000.0 ** (-torch.arange(0, 16, 2) / 16)})),
        ("inv_freq", "10000", "50000"),
        "rope_theta",
    ),
    Fault(
        "scaling_lost",
        "rope-of-target",
        "warning",
        as_it_is,
        ("llama3", "unscaled", "lost"),
        "rope_scaling",
        breaks_target=config(rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}),
    ),
    Fault(
        "positions_end_early",
        "max-positions",
        "warning",
        as_it_is,
        ("512", "4096"),
        "max_position_embeddings = 4096",
        breaks_target=config(max_position_embeddings=4096),
    ),
    # --- K07
    Fault(
        "head_dim_not_stated",
        "head-dim",
        "error",
        config(head_dim=...),
        ("32", "16"),
        "head_dim = 32",
        sizes=replace(SIZES, head_dim=32),
    ),
    Fault(
        "other_head_dim",
        "head-dim",
        "error",
        config(head_dim=32),
        ("32", "16"),
        "config.json: head_dim = 16; or else num_attention_heads = 2, num_key_value_heads = 1: the shapes fit both",
        also=("opens", "shapes"),
    ),
    Fault(
        "twice_the_heads_of_half_the_size",
        "shapes",
        "error",
        config(num_attention_heads=8, head_dim=8),
        ("k_proj", "expected [16, 128]"),
        "num_attention_heads = 4, head_dim = 16 (the target's head_dim is 16 too); or else num_key_value_heads = 4",
        also=("opens",),
        breaks_target=config(head_dim=16),
    ),
    Fault(
        "half_the_heads_with_a_norm_of_q",
        "shapes",
        "error",
        config(num_attention_heads=2, num_key_value_heads=1, head_dim=32),
        ("q_norm",),
        "config.json: num_attention_heads = 4, num_key_value_heads = 2, head_dim = 16",
        also=("opens",),
        make={"qk_norm": True},
    ),
    Fault(
        "attention_takes_one_width",
        "shapes",
        "error",
        weights(put(Q, lambda t: t[:, :64])),
        ("midlayer.self_attn.q_proj.weight is [64, 64]", "1 x H"),
        also=("opens",),
    ),
    Fault(
        "target_width_not_stated",
        "shapes",
        "error",
        config(target_hidden_size=...),
        ("3 x 40", "120"),
        "target_hidden_size = 40",
        sizes=replace(SIZES, target_hidden=40),
        also=("opens", "target-width"),
    ),
    Fault(
        "another_targets_width",
        "target-width",
        "error",
        as_it_is,
        ("128", "64"),
        "target_hidden_size",
        breaks_target=config(hidden_size=128),
    ),
    Fault(
        "another_targets_vocabulary",
        "target-vocab",
        "error",
        as_it_is,
        ("200", "300"),
        "target",
        breaks_target=config(vocab_size=200),
    ),
    # --- K11
    Fault("nan", "numbers", "error", weights(put(FC, one_nan)), ("fc.weight", "1 NaN"), "epoch"),
    Fault("infinite", "numbers", "error", weights(put(Q, lambda t: t / 0)), ("q_proj", "infinite")),
    Fault("other_dtype", "dtypes", "note", config(torch_dtype="float16"), ("bfloat16", "float16"), "torch_dtype"),
    # --- K13
    Fault(
        "multimodal_target",
        "mrope-target",
        "note",
        as_it_is,
        ("mrope", "mrope_section"),
        breaks_target=config(rope_scaling={"rope_type": "mrope", "mrope_section": [8, 12, 12]}),
    ),
    # --- K14
    Fault("truncated", "files-whole", "error", truncate, ("1000 of", "missing"), "copy"),
    Fault("missing_shard", "files-whole", "error", missing_shard, ("model-00002-of-00002",)),
    Fault("weights_gone", "files-whole", "error", lambda f: (f / "model.safetensors").unlink(), ("no weights",)),
    Fault(
        "trainer_folder", "servable-folder", "error", trainer_folder, ("NeMo", "config.json"), "export", also=("opens",)
    ),
    Fault("second_file", "weights-files", "note", second_file, ("2 files", "model.safetensors")),
)

"""Measures what was written and says so in the data's README."""

import textwrap
from pathlib import Path

import torch

from . import corpus, evaluate
from .evaluate import SERVED, TRAINED
from .recipe import Recipe

TEMPLATE = """\
# What `eagle3-tui demo` opens

Written by `scripts/train_demo.py` in {seconds:.0f} s on {threads} cores (Python {python}, torch {torch}); do not
edit. Everything here was really trained and really recorded, on a small scale. Seeds are fixed; another CPU, torch
or Python gives close, not equal, numbers.

**Text and licence.** `pydoc_data.topics` of CPython {python}: the Python language reference, © Python Software
Foundation, PSF-2.0 licence. The tokenizer's vocabulary was made from it, the samples' prompts are pieces of it and
their continuations often repeat it.

**Target** (`demo-target`, a plain Llama): {layers} layers, H {hidden}, {heads} heads, MLP {mlp}, V {vocab},
byte-level BPE. Each layer was trained behind a fixed gain that grows with depth, and the gain was then multiplied
into `o_proj` and `down_proj`: the residual stream grows as a large model's does. `target/` holds what a drafter
shares with its target (embedding, final norm, head, tokenizer), not the layers. States were computed in float32 from
weights that bfloat16 holds exactly, and are stored as bfloat16.

**Samples** (`samples/train`, `samples/held_out`; `data_N.pt` as speculators 0.3 and 0.4 wrote them): the target's
own continuations of prompts of {prompt[0]} to {prompt[1]} tokens, half of them greedy, half at temperature
{temperature}. `hidden_states` is the residual stream after 0, {depths} of {layers} layers, the last before the final
norm. The training samples are among the {train_samples} that the drafter learned from. The held-out prompts are cut
from topics that neither tokenizer, target nor drafter was trained on: {held_out_topics}. The files are the first
greedy and the first sampled ones of at least {sample_tokens[0]} tokens; none was chosen by its score.

| mean norm of a state | embedding | {depth_names} |
|---|---|---|---|---|
| train | {train_norms} |
| held out | {held_out_norms} |

**Drafter** (`output/EPOCH`): one EAGLE-3 layer, {heads} heads, {kv_heads} KV heads, D {draft_vocab},
`norm_before_residual: true`, {ttt_steps} steps of training-time test, trained on **fc input = slots 0,1,2** = depths
0, {a}, {b}. The files lie as in the story behind this tool. `config.json` is what a server reads: its layer ids
[{ids}] make a server that adds one capture depths {depths} = **slots 1,2,3**, and that is the fault to find.
`config_speculators.json` says how the drafter was trained; it follows the layout of speculators 0.9.0 (hence its
`speculators_version`), but `scripts/train_demo.py` wrote it, not speculators. So it is with `val_metrics.json`:
speculators' definitions, measured after that epoch on {held_out_samples} held-out samples, the {shipped} shipped
ones among them. They did not choose the epoch (the last one is simply the last); but the recipe, above all the
number of layers and of training steps, was settled in earlier trials with these held-out topics in view.

## Measured
Pooled over the {shipped} samples of a folder: the drafter's first prediction, mapped to the target's vocabulary, is
the next token of the sample (rows where the mask of the token that is fed is 1). Computed from these files, in
float32, by `scripts/demo_training/evaluate.py`, which shares no code with the training.

| step-0 `next_token`, epoch {last} | train | held out |
|---|---|---|
{orderings}

| ordering 0,1,2 by epoch | train | held out |
|---|---|---|
{epochs}

| | train | held out |
|---|---|---|
| tokens of the continuations that are in the draft vocabulary | {train_coverage} | {held_out_coverage} |
| the target's own choice (read from slot 3) is the next token | {train_verifier} | {held_out_verifier} |
"""


def measure(recipe: Recipe, out: Path, seconds: float) -> str:
    target, last = out / "target", out / "output" / str(recipe.shipped_epochs[-1])
    folders = {name: out / "samples" / name for name in ("train", "held_out")}
    scores = {n: evaluate.score(last, target, f, evaluate.all_orderings()) for n, f in folders.items()}
    facts: dict[str, object] = {name: getattr(recipe, name) for name in vars(recipe)}
    for name, folder in folders.items():
        evaluate.check_embedding(target, folder)
        facts[f"{name}_norms"] = " | ".join(f"{norm:.1f}" for norm in evaluate.slot_norms(folder))
        facts[f"{name}_coverage"] = evaluate.coverage(last, folder)
        facts[f"{name}_verifier"] = evaluate.verifier_agreement(target, folder)
    a, b, _ = recipe.depths
    facts |= {
        "layers": recipe.layers,
        "python": corpus.PYTHON,
        "torch": torch.__version__.split("+")[0],
        "seconds": seconds,
        "prompt": recipe.prompt_tokens,
        "held_out_topics": ", ".join(corpus.split()[1]),
        "depths": ", ".join(map(str, recipe.depths)),
        "depth_names": " | ".join(f"after {d} layers" for d in recipe.depths),
        "ids": ", ".join(str(d - 1) for d in recipe.depths),
        "a": a,
        "b": b,
        "last": last.name,
        "orderings": ordering_rows(scores),
        "epochs": epoch_rows(recipe, out, folders),
    }
    return wrap(TEMPLATE.format(**facts))


def wrap(text: str) -> str:
    """Fill the paragraphs again, now that the numbers stand in them; headings and tables stay."""
    blocks = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        fixed = [line for line in lines if line.startswith(("#", "|"))]
        prose = " ".join(line for line in lines if line not in fixed)
        blocks.append("\n".join([*fixed, *textwrap.wrap(prose, 120, break_on_hyphens=False)]))
    return "\n\n".join(blocks) + "\n"


def ordering_rows(scores: dict[str, dict[evaluate.Ordering, evaluate.Score]]) -> str:
    train, held_out = scores["train"], scores["held_out"]
    notes = {TRAINED: " as trained", SERVED: " as served"}
    ranked = sorted(held_out, key=lambda o: (o != TRAINED, o != SERVED, -held_out[o].ratio))
    return "\n".join(
        f"| {','.join(map(str, o))}{notes.get(o, '')} | {train[o]} ({train[o].hits}/{train[o].rows})"
        f" | {held_out[o]} ({held_out[o].hits}/{held_out[o].rows}) |"
        for o in ranked
    )


def epoch_rows(recipe: Recipe, out: Path, folders: dict[str, Path]) -> str:
    rows = []
    for epoch in recipe.shipped_epochs:
        found = [evaluate.score(out / "output" / str(epoch), out / "target", f, [TRAINED]) for f in folders.values()]
        rows.append(f"| {epoch} | {found[0][TRAINED]} | {found[1][TRAINED]} |")
    return "\n".join(rows)

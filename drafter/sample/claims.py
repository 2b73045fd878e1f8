"""What the slots are said to be: by the user (`--slots`), a file beside the sample, the training's config, the layout.

A claim is never checked here; `drafter.sample.probes.probe` looks at the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from drafter.errors import DrafterError, WiringError
from drafter.files.json_file import read_json
from drafter.sample.default_layers import default_depths
from drafter.sample.formats import speculators_arrow, speculators_v1
from drafter.sample.sample import POST, PRE, Claim, Sample, Slot

EMBED, LAST, UNKNOWN = "embed", "last", "?"
MAX_DIGITS = 6
TRAINED = "training config: its layer ids, then the verifier's last"
SIDECAR = "data_config.json"
# recorders that test for each layer whether it was asked for, so that the order of the list is lost
_SPECULATORS = (speculators_arrow.NAME, speculators_arrow.CONNECTOR, speculators_v1.NAME)

Claims = list[Claim | None]


def parse_slots(labels: str) -> list[Claim]:
    """`embed,3,31,last` as claims; `last:pre` and `last:post` say on which side of the target's final norm it is.

    Raises WiringError for any other name: what means nothing to the tool is most likely misspelt.
    """
    claims = []
    for label in (part.strip() for part in labels.split(",")):
        name, colon, norm = label.partition(":")
        if not label:
            raise WiringError(f"an empty label in --slots {labels!r}", expected="embed,3,31,last")
        if label.isdecimal() and label.isascii() and len(label) <= MAX_DIGITS:
            claims.append(depth_claim(int(label), "--slots"))
        elif label == EMBED:
            claims.append(Claim(EMBED, "--slots", 0))
        elif name == LAST and (not colon or norm in (PRE, POST)):
            claims.append(Claim(LAST, "--slots", is_last=True, norm=norm))
        elif label == UNKNOWN:
            claims.append(Claim(label, "--slots"))
        else:
            expected = f"a depth in layers, {EMBED}, {LAST}, {LAST}:{PRE}, {LAST}:{POST}, or {UNKNOWN} if not known"
            raise WiringError(f"{label!r} in --slots", expected=expected)
    return claims


def depth_claim(depth: int, source: str, num_layers: int | None = None) -> Claim:
    label = EMBED if depth == 0 else str(depth)
    return Claim(label, source, depth, is_last=num_layers is not None and depth == num_layers)


def claim_slots(
    sample: Sample, labels: str | None, trained_depths: Sequence[int] | None, num_layers: int | None
) -> Sample:
    """`sample` with the best claims there are: the user's, the sidecar's, the training's, else those of the layout.

    They are made from the slots' layout; claims that the slots already carry are dropped. `trained_depths` are those
    that the training's own config names; `num_layers` is the target's, if known. Raises WiringError when `--slots`
    names another number of slots.
    """
    claims: Claims | None
    if labels is not None:
        claims = [*parse_slots(labels)]
        if len(claims) != len(sample.slots):
            expected = f"{len(sample.slots)}"
            raise WiringError(f"--slots names {len(claims)} slots", expected=expected, where=sample.path)
    else:
        claims = _by_sidecar(sample, num_layers)
        if claims is None:
            claims = _by_training(sample, trained_depths, num_layers)
        if claims is None:
            claims = _by_layout(sample, num_layers)
    paired = zip(sample.slots, claims, strict=True)
    return sample.with_claims([_complete(slot, claim, num_layers) for slot, claim in paired])


def _complete(slot: Slot, claim: Claim | None, num_layers: int | None) -> Claim | None:
    """`claim` with what the target's number of layers and the layout add: whether it is the last state, and its norm.

    The layout adds nothing to a claim that contradicts it, a depth other than the target's last or a `?`.
    """
    if claim is None:
        return None
    if claim.depth is not None and claim.depth == num_layers:
        claim = replace(claim, is_last=True)
    layout = slot.layout
    could_be_last = claim.is_last or (claim.depth and num_layers is None)
    if layout is None or not layout.is_last or not could_be_last:
        return claim
    return replace(claim, is_last=True, norm=claim.norm or layout.norm)


def _by_sidecar(sample: Sample, num_layers: int | None) -> Claims | None:
    """`hidden_states.layer_ids` of the file that speculators 0.3 and 0.4 wrote beside the samples: ids after a layer.

    None where there is none for as many slots.
    """
    path = sample.path.parent / SIDECAR
    if not path.is_file():
        return None
    try:
        inner: Any = read_json(path).get("hidden_states")
    except DrafterError:
        return None
    ids = inner.get("layer_ids") if isinstance(inner, dict) else None
    if not isinstance(ids, list) or len(ids) != len(sample.slots) or not all(type(i) is int for i in ids):
        return None
    return _ascending([i + 1 for i in ids], SIDECAR, num_layers)


def _by_training(sample: Sample, trained: Sequence[int] | None, num_layers: int | None) -> Claims | None:
    """The layers of the training's config, where their number fits the slots and the layout does not name others."""
    aux = [slot for slot in sample.slots if slot.layout is None or not slot.layout.is_last]
    count, own = len(sample.slots), [slot.layout for slot in aux if slot.layout is not None]
    if trained is None or own:  # depths, or the file's own names, which no rule about positions may cover
        return None
    claims: Claims
    if sample.format in _SPECULATORS:
        claims = _ascending(trained, TRAINED, num_layers)
    else:
        claims = [depth_claim(depth, TRAINED, num_layers) for depth in trained]
    if len(claims) == count:
        ends_elsewhere = num_layers is not None and trained[-1] != num_layers
        return None if len(aux) < count and ends_elsewhere else claims
    if len(claims) != count - 1:
        return None
    layout = sample.slots[-1].layout
    if layout is None and sample.format == speculators_arrow.NAME:
        # only the newer layout promises that its last entry is the verifier's; a v1 list ends as was asked for
        layout = Claim(LAST, TRAINED, is_last=True, norm=PRE)
    return [*claims, layout]


def _ascending(depths: Sequence[int], source: str, num_layers: int | None) -> Claims:
    """What speculators' recorders do with a list of layers: ascending, none after the final norm."""
    ordered = sorted(depths)
    if ordered != list(depths):
        source = f"{source}; recorded in ascending order"
    claims = [depth_claim(depth, source, num_layers) for depth in ordered]
    return [replace(claim, norm=PRE) if claim.is_last else claim for claim in claims]


def _by_layout(sample: Sample, num_layers: int | None) -> Claims:
    """What the layout promises, and the producer's default layers for the slots of which it says nothing."""
    claims: Claims = [slot.layout for slot in sample.slots]
    unnamed = [i for i, claim in enumerate(claims) if claim is None]
    if not sample.aux_rule or num_layers is None or not unnamed:
        return claims
    depths = default_depths(sample.aux_rule, num_layers)
    if depths is None or len(depths) != len(unnamed):
        return claims
    producer = sample.format.partition(" (")[0]
    source = f"{producer}'s default layers {sample.aux_rule} with L = {num_layers}; no file says so"
    for i, depth in zip(unnamed, depths, strict=True):
        claims[i] = replace(depth_claim(depth, source, num_layers), assumed=True)
    return claims

"""What the slots are said to be: by the user (`--slots`), by a file beside the sample, or by the training's own rule.

A claim is never checked here; `drafter.sample.probe` looks at the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drafter.errors import DrafterError, WiringError
from drafter.files.json_file import read_json
from drafter.sample import speculators_arrow
from drafter.sample.sample import Claim, Sample

EMBED, LAST, UNKNOWN = "embed", "last", "?"
MAX_DIGITS = 6


def parse_slots(labels: str) -> list[Claim]:
    """`embed,3,31,last` as claims. Raises WiringError for a label that is neither a depth nor a name."""
    claims = []
    for label in (part.strip() for part in labels.split(",")):
        if not label:
            raise WiringError(f"an empty label in --slots {labels!r}", expected="embed,3,31,last")
        if label.isdecimal() and label.isascii() and len(label) <= MAX_DIGITS:
            claims.append(depth_claim(int(label), "--slots"))
        elif label == EMBED:
            claims.append(Claim(EMBED, "--slots", 0))
        elif label == LAST:
            claims.append(Claim(LAST, "--slots", is_last=True))
        elif label == UNKNOWN or (label.isidentifier() and label.isascii()):
            claims.append(Claim(label, "--slots"))
        else:
            raise WiringError(f"{label!r} in --slots", expected="a depth, embed, last, ? or a name")
    return claims


def depth_claim(depth: int, source: str, num_layers: int | None = None) -> Claim:
    label = EMBED if depth == 0 else str(depth)
    return Claim(label, source, depth, is_last=num_layers is not None and depth == num_layers)


def claim_slots(
    sample: Sample, labels: str | None, trained_depths: Sequence[int] | None, num_layers: int | None
) -> Sample:
    """`sample` with the best claim there is: the user's, the sidecar's, then the trainer's rule.

    `trained_depths` are those that the training's own config names; `num_layers` is the target's, if known.
    Raises WiringError when `--slots` names another number of slots.
    """
    count = len(sample.slots)
    if labels is not None:
        claims = parse_slots(labels)
        if len(claims) != count:
            raise WiringError(f"--slots names {len(claims)} slots", expected=f"{count}", where=sample.path)
        return sample.with_claims([_mark_last(claim, num_layers) for claim in claims])
    sidecar = _data_config(sample)
    if sidecar is not None and len(sidecar) == count:
        return sample.with_claims([depth_claim(i + 1, "data_config.json", num_layers) for i in sidecar])
    if trained_depths is not None and count in (len(trained_depths), len(trained_depths) + 1):
        rule = "training config: its layer ids, then the verifier's last"
        by_rule: list[Claim | None] = [depth_claim(depth, rule, num_layers) for depth in trained_depths]
        if count > len(by_rule):
            # only the newer layout promises that its last entry is the verifier's; a v1 list ends as was asked for
            promised = sample.format == speculators_arrow.NAME
            by_rule.append(Claim(LAST, rule, is_last=True) if promised else None)
        return sample.with_claims(by_rule)
    return sample


def _mark_last(claim: Claim, num_layers: int | None) -> Claim:
    if claim.depth is not None and claim.depth == num_layers:
        return Claim(claim.label, claim.source, claim.depth, is_last=True)
    return claim


def _data_config(sample: Sample) -> list[int] | None:
    """`hidden_states.layer_ids` of the file that speculators 0.3 and 0.4 wrote beside the samples."""
    path = sample.path.parent / "data_config.json"
    if not path.is_file():
        return None
    try:
        inner: Any = read_json(path).get("hidden_states")
    except DrafterError:
        return None
    ids = inner.get("layer_ids") if isinstance(inner, dict) else None
    return ids if isinstance(ids, list) and all(type(i) is int for i in ids) else None

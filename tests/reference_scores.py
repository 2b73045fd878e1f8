"""Counting by brute force: one plain loop over rows for every count, written from the definitions alone.

Sample: tokens x[0..T-1] (`ids`), loss mask l[0..T-1]. Predictions: `pred[k][t]`, a DRAFT id or None, for step k and
row t = 0..T-2. Verifier: `argmax[j]` is the target model's choice after x[0..j], over its whole vocabulary (a target
id) or over the draft vocabulary (a draft id); the truth of row t at step k is argmax[t+1+k].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb
from typing import Any

MODES = ("next", "same", "predicted", "all")
Predictions = Sequence[Sequence[int | None]]


@dataclass(frozen=True)
class Count:
    hits: int
    total: int

    def json(self) -> dict[str, int]:
        return {"hits": self.hits, "total": self.total}


@dataclass(frozen=True)
class StepCounts:
    marginal: Count
    joint: Count
    conditional: Count

    def json(self) -> dict[str, dict[str, int]]:
        return {name: getattr(self, name).json() for name in ("marginal", "joint", "conditional")}


@dataclass(frozen=True)
class Scored:
    """A metric on one sample: is there a truth for (k, t), and is the prediction right?"""

    rows: int  # T-1
    has_truth: Callable[[int, int], bool]
    is_hit: Callable[[int, int], bool]


@dataclass(frozen=True)
class Accept:
    """Accept lengths; histogram[n] rows have length n + 1, so its K+1 bins are lengths 1..K+1."""

    rows: int
    histogram: list[int]

    @property
    def mean(self) -> float | None:
        return sum((n + 1) * rows for n, rows in enumerate(self.histogram)) / self.rows if self.rows else None


@dataclass
class Walk:
    rounds: int = 0
    tokens: int = 0
    accepted: list[int] = field(default_factory=list)  # for each round, for whoever wants to see it


def counts_row(mask: Sequence[int], mode: str, t: int) -> bool:
    """m(t): does row t count? `next` l[t+1] (the token fed), `same` l[t], `predicted` l[t+2] (0 past the end)."""
    if mode == "all":
        return True
    index = t + {"next": 1, "same": 0, "predicted": 2}[mode]
    return index < len(mask) and bool(mask[index])


def mapped(draft_id: int | None, d2t: Sequence[int]) -> int | None:
    return None if draft_id is None else draft_id + d2t[draft_id]


def next_token(pred: Predictions, ids: Sequence[int], d2t: Sequence[int]) -> Scored:
    """Against the sample's own text: a truth exists while t+2+k <= T-1."""
    last = len(ids) - 1
    return Scored(last, lambda k, t: t + 2 + k <= last, lambda k, t: mapped(pred[k][t], d2t) == ids[t + 2 + k])


def verifier_strict(pred: Predictions, ids: Sequence[int], d2t: Sequence[int], argmax: Sequence[int]) -> Scored:
    """Against the verifier's choice over its whole vocabulary: a truth exists while t+1+k <= T-1."""
    last = len(ids) - 1
    return Scored(last, lambda k, t: t + 1 + k <= last, lambda k, t: mapped(pred[k][t], d2t) == argmax[t + 1 + k])


def verifier_draft_vocab(pred: Predictions, ids: Sequence[int], argmax_draft: Sequence[int]) -> Scored:
    """Against the verifier's choice among the draft vocabulary, compared as draft ids."""
    last = len(ids) - 1
    return Scored(last, lambda k, t: t + 1 + k <= last, lambda k, t: pred[k][t] == argmax_draft[t + 1 + k])


def in_vocab(pred: Predictions, ids: Sequence[int], d2t: Sequence[int], argmax: Sequence[int]) -> Scored:
    """`verifier_strict` where the verifier's choice can be drafted; elsewhere no truth, so the row is in no total."""
    strict = verifier_strict(pred, ids, d2t, argmax)
    draftable = {d + offset for d, offset in enumerate(d2t)}
    return Scored(
        strict.rows,
        lambda k, t: strict.has_truth(k, t) and argmax[t + 1 + k] in draftable,
        strict.is_hit,
    )


def count_step(scored: Scored, mask: Sequence[int], mode: str, k: int) -> StepCounts:
    """marginal: rows with a truth at k and m(t+k). joint: the same total; hits also need m(t) and steps 0..k all right.
    conditional: the joint hits over the rows with m(t), steps 0..k-1 all right and a truth at k (whatever m(t+k) says).
    """
    hits = total = joint = reached = 0
    for t in range(scored.rows):
        if not scored.has_truth(k, t):
            continue
        before = all(scored.has_truth(j, t) and scored.is_hit(j, t) for j in range(k))
        starts, counts, hit = counts_row(mask, mode, t), counts_row(mask, mode, t + k), scored.is_hit(k, t)
        total += counts
        hits += counts and hit
        joint += starts and counts and before and hit
        reached += starts and before
    return StepCounts(Count(hits, total), Count(joint, total), Count(joint, reached))


def count(scored: Scored, mask: Sequence[int], mode: str, depth: int) -> list[StepCounts]:
    return [count_step(scored, mask, mode, k) for k in range(depth)]


def existing(pred: Sequence[Sequence[int]], tokens: int) -> list[list[int | None]]:
    """Recorded predictions [K][T-1] without those whose input token x[t+1+k] does not exist.

    Trainers compute these too, on padding, and leave them out of every count.
    """
    return [[p if t + 1 + k <= tokens - 1 else None for t, p in enumerate(step)] for k, step in enumerate(pred)]


def leading(flags: Sequence[bool]) -> int:
    """How many are true before the first false."""
    n = 0
    for flag in flags:
        if not flag:
            break
        n += 1
    return n


def accept_lengths(
    pred: Predictions, ids: Sequence[int], d2t: Sequence[int], mask: Sequence[int], mode: str, depth: int
) -> Accept:
    """1 + leading right steps against the sample's tokens, over rows with all K truths and m(t+k) for every k < K."""
    scored = next_token(pred, ids, d2t)
    histogram = [0] * (depth + 1)
    for t in range(scored.rows):
        steps = range(depth)
        if all(scored.has_truth(k, t) and counts_row(mask, mode, t + k) for k in steps):
            histogram[leading([scored.is_hit(k, t) for k in steps])] += 1
    return Accept(sum(histogram), histogram)


def runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    """Each maximal run of supervised tokens as (first index, index after the last)."""
    found: list[tuple[int, int]] = []
    for i, flag in enumerate(mask):
        if not flag:
            continue
        if i > 0 and mask[i - 1]:
            found[-1] = (found[-1][0], i + 1)
        else:
            found.append((i, i + 1))
    return found


def walk(pred: Predictions, ids: Sequence[int], d2t: Sequence[int], mask: Sequence[int], depth: int) -> Walk:
    """What a server's log would say: decode each run of supervised tokens round by round.

    The run's first token is free. A round drafts K tokens from the last known token x[p] (row p-1), accepts the leading
    ones that equal the sample's, at most as many as the run still has, and emits one more than it accepted, again at
    most what the run still has. A run that begins at token 0 has no row for its first round (no state is recorded
    before token 0): that round drafts nothing and emits one token.
    """
    out = Walk()
    for start, end in runs(mask):
        p = start
        while p < end - 1:
            left = end - 1 - p
            hits = [p > 0 and mapped(pred[k][p - 1], d2t) == ids[p + 1 + k] for k in range(min(depth, left))]
            accepted = leading(hits)
            emitted = min(accepted + 1, left)
            out.rounds += 1
            out.tokens += emitted
            out.accepted.append(accepted)
            p += emitted
    return out


def coverage(ids: Sequence[int], d2t: Sequence[int], mask: Sequence[int], mode: str) -> Count:
    """How many of the tokens that step 0 should predict (x[t+2] of the rows that count) are in the draft vocabulary."""
    draftable = {d + offset for d, offset in enumerate(d2t)}
    rows = [t for t in range(len(ids) - 2) if counts_row(mask, mode, t)]
    return Count(sum(ids[t + 2] in draftable for t in rows), len(rows))


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Exact two-sided p of McNemar's test: of the rows on which one alone is right, is the split like a fair coin's?"""
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    return mcnemar_counts(only_first, only_second)


def mcnemar_counts(only_first: int, only_second: int) -> float:
    """2 * P(X <= min) for X ~ Binomial(n, 1/2), n the discordant rows, at most 1; 1 without any."""
    n = only_first + only_second
    tail = sum(comb(n, i) for i in range(min(only_first, only_second) + 1))
    return float(min(Fraction(1), Fraction(2 * tail, 2**n)))


def score_json(
    pred: Predictions,
    ids: Sequence[int],
    mask: Sequence[int],
    d2t: Sequence[int],
    mode: str,
    depth: int,
    argmax: Sequence[int] | None = None,
    argmax_draft: Sequence[int] | None = None,
) -> dict[str, Any]:
    """One sample and ordering in the shape of `score --json`; without the verifier's choices its metrics are None."""
    metrics: dict[str, Scored | None] = {
        "next_token": next_token(pred, ids, d2t),
        "verifier_strict": None if argmax is None else verifier_strict(pred, ids, d2t, argmax),
        "verifier_draft_vocab": None if argmax_draft is None else verifier_draft_vocab(pred, ids, argmax_draft),
        "in_vocab": None if argmax is None else in_vocab(pred, ids, d2t, argmax),
    }
    steps: list[dict[str, Any]] = []
    for k in range(depth):
        counted = {name: scored and count_step(scored, mask, mode, k) for name, scored in metrics.items()}
        steps.append({name: step and step.json() for name, step in counted.items()})
    accept = accept_lengths(pred, ids, d2t, mask, mode, depth)
    walked = walk(pred, ids, d2t, mask, depth)
    return {
        "steps": steps,
        "accept_length": {
            "rows": accept.rows,
            "histogram": accept.histogram,
            "mean": accept.mean,
            "walk": {
                "rounds": walked.rounds,
                "tokens": walked.tokens,
                "length": walked.tokens / walked.rounds if walked.rounds else None,
            },
        },
    }


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Every value of a JSON tree under its path, to compare two trees and name what differs."""
    if isinstance(tree, Mapping):
        return {k: v for key, sub in tree.items() for k, v in leaves(sub, f"{path}/{key}").items()}
    if isinstance(tree, list):
        return {k: v for i, sub in enumerate(tree) for k, v in leaves(sub, f"{path}/{i}").items()}
    return {path: tree}


def differing(ours: Any, theirs: Any) -> list[str]:
    """Where ours differs from theirs, over what theirs holds: counts to the unit, means up to the rounding of a sum."""

    def same(a: Any, b: Any) -> bool:
        return abs(a - b) < 1e-12 if isinstance(a, float) and isinstance(b, float) else bool(a == b)

    have = leaves(ours)
    return [f"{k}: {have.get(k)} != {v}" for k, v in leaves(theirs).items() if not same(have.get(k), v)]

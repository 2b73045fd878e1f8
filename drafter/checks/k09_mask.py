"""The loss mask: whether anything is supervised, and whether it is what the assistant wrote.

The chat's own marks tell the assistant's turns, where a tokenizer is there; no template is run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, NOTE, OK, SMP, TOK, WARNING, Finding
from drafter.checks.registry import SAMPLE, check
from drafter.sample.sample import Sample
from drafter.sample.text.laid_text import LaidText
from drafter.sample.text.roles import find_turns
from drafter.sample.text.supervised import thinking_spans

EMPTY = ("sgl-project/SpecForge#392",)
EDGES = ("sgl-project/SpecForge#885", "vllm-project/speculators#346")
NAMED = 4


@check("something-is-supervised", "K09", (CKPT, SMP), EMPTY, SAMPLE)
def supervised(case: Case) -> Iterator[Finding]:
    """Supervised tokens of each sample."""
    counts = {s.path.name: (int(s.supervised.sum()), s.length) for s in case.samples}
    empty = {name: f"0 of {length} tokens" for name, (count, length) in counts.items() if not count}
    total, tokens = sum(c for c, _ in counts.values()), sum(n for _, n in counts.values())
    if empty:
        severity = ERROR if len(empty) == len(counts) else WARNING
        title = f"{len(empty)} of {len(counts)} samples have no supervised token: loss and accuracy stay 0"
        fix = "the text does not match the chat template that the mask was made from: make it again (--supervised)"
        yield Finding(
            "something-is-supervised",
            "K09",
            severity,
            title,
            dict(list(empty.items())[:NAMED]),
            fix,
            EMPTY,
            "sample",
            80,
        )
    elif all(s.mask is None for s in case.samples):
        yield Finding(
            "something-is-supervised", "K09", NOTE, "no loss mask is recorded: every token counts", {"tokens": tokens}
        )
    else:
        yield Finding(
            "something-is-supervised", "K09", OK, f"{total} of {tokens} tokens are supervised", {"samples": len(counts)}
        )


@check("mask-is-where-the-answers-are", "K09", (CKPT, SMP, TOK), EDGES, SAMPLE)
def answers(case: Case) -> Iterator[Finding]:
    """The mask against the assistant's turns, with the known ways in which they differ by name."""
    found: dict[str, tuple[str, str]] = {}
    compared = 0
    for sample in case.samples:
        told = _against_turns(case, sample)
        compared += told is not None
        if told is not None and told[1]:
            found[sample.path.name] = told
    if not compared:
        return
    if not found:
        title = f"the mask is the assistant's turns in all {compared} samples with chat marks"
        yield Finding("mask-is-where-the-answers-are", "K09", OK, title, {"samples": compared})
        return
    worst = ERROR if any(severity == ERROR for severity, _ in found.values()) else WARNING
    worst = NOTE if all(severity == NOTE for severity, _ in found.values()) else worst
    name, (_, words) = next((n, told) for n, told in found.items() if told[0] == worst)
    yield Finding(
        "mask-is-where-the-answers-are",
        "K09",
        worst,
        f"{words}: {name} and {len(found) - 1} more of {compared} samples with chat marks",
        {n: text for n, (_, text) in list(found.items())[:NAMED]},
        "make the masks again from the chat template; --supervised roles counts the assistant's turns here",
        EDGES,
        "sample",
        55,
    )


def _against_turns(case: Case, sample: Sample) -> tuple[str, str] | None:
    """(severity, words) of how the mask differs from the turns; words empty where it does not; None without turns."""
    if case.tokens is None or sample.mask is None or not bool(sample.mask.any()):
        return None
    turns = find_turns(LaidText(sample.ids.tolist(), case.tokens))
    if turns is None or not turns[0]:
        return None
    roles = torch.zeros(sample.length, dtype=torch.bool)
    for start, stop in turns[0]:
        roles[start:stop] = True
    ended = roles.clone()
    ended[[stop for _, stop in turns[0] if stop < sample.length]] = True
    mask = sample.mask
    if torch.equal(mask, roles) or torch.equal(mask, ended):
        return OK, ""
    if any(torch.equal(mask[1:], wanted[:-1]) for wanted in (roles, ended)):
        return ERROR, "the mask stands one token late: the first token of each answer is not supervised"
    if any(torch.equal(mask[:-1], wanted[1:]) for wanted in (roles, ended)):
        return ERROR, "the mask stands one token early"
    starts = [start for start, _ in turns[0]]
    without = (roles.clone(), ended.clone())
    for wanted in without:
        wanted[starts] = False
        if torch.equal(mask, wanted):
            return ERROR, "the first token of each answer is not supervised"
    return _inside(sample, roles, turns[0], case)


def _inside(sample: Sample, roles: torch.Tensor, turns: list[tuple[int, int]], case: Case) -> tuple[str, str]:
    mask = sample.supervised
    assert case.tokens is not None
    thinking = [i for span in thinking_spans(sample, case.tokens) for i in span]
    if thinking and not bool(mask[thinking].any()) and bool(mask.any()):
        share = len(thinking) / max(int(roles.sum()), 1)
        return WARNING, f"no token of the thinking is supervised, {share:.0%} of what the assistant wrote"
    if bool(mask.all()):
        return NOTE, "every token is supervised, the prompt's too"
    if not bool(mask[: turns[-1][0]].any()):
        return NOTE, "only the last answer is supervised"
    return WARNING, f"the mask and the assistant's turns differ in {int((mask != roles).sum())} tokens"

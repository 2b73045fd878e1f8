"""Which tokens count as supervised: the recorded loss mask, or another that the user asks for, and what either shows.

`roles` is what the text itself says, by its chat-template marks; it knows nothing of how the mask was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from drafter.errors import SampleError, WiringError
from drafter.sample.sample import Sample
from drafter.sample.text.laid_text import LaidText
from drafter.sample.text.roles import Spans, assistant_spans, find_turns
from drafter.sample.text.tokens import TokenText, piece

if TYPE_CHECKING:
    import torch

RECORDED, ALL, ROLES = "recorded", "all", "roles"
_EXPECTED = "recorded, all, roles, or token spans such as 40:212,260:"
_SPAN = re.compile(r"(\d{0,9}):(\d{0,9})", re.ASCII)
_THINKING = ((b"<think>", b"</think>"), ("◁think▷".encode(), "◁/think▷".encode()), (b"[THINK]", b"[/THINK]"))
_EVERY_ROW = "all rows count"  # what readers say where no mask is recorded; no longer so with another mask


def parse_supervised(how: str) -> list[tuple[int, int | None]]:
    """The spans that `how` names, each from its first token to the one after its last (None: to the end).

    None for the words `recorded`, `all` and `roles`. Raises WiringError for what cannot be meant.
    """
    if how in (RECORDED, ALL, ROLES):
        return []
    spans: list[tuple[int, int | None]] = []
    for part in how.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None:
            raise WiringError(f"--supervised {how!r}", expected=_EXPECTED)
        start, stop = int(match[1] or 0), int(match[2]) if match[2] else None
        if stop is not None and stop <= start:
            raise WiringError(f"--supervised {how!r}", expected=f"a span that ends after token {start}")
        spans.append((start, stop))
    return spans


def choose_mask(sample: Sample, how: str, tokens: TokenText | None) -> Sample:
    """`sample` with the loss mask that `how` asks for, and a warning that says what it is and was.

    Raises SampleError where the sample has no such tokens or turns, WiringError where `how` cannot be meant.
    """
    if how == RECORDED:
        return sample
    import torch

    spans, what = _asked(sample, how, tokens)
    mask = torch.zeros(sample.length, dtype=torch.bool)
    for start, stop in spans:
        mask[start:stop] = True
    was = "nothing recorded"
    if sample.mask is not None:
        was = f"recorded {int(sample.mask.sum())}; {_differences(_differing(sample.mask, mask))}"
    said = f"{what}: {int(mask.sum())} of {sample.length} tokens supervised (--supervised {how}); {was}"
    kept = tuple(warning for warning in sample.warnings if _EVERY_ROW not in warning)
    return replace(sample, mask=mask, warnings=(*kept, said))


def _asked(sample: Sample, how: str, tokens: TokenText | None) -> tuple[Spans, str]:
    if how == ALL:
        return [(0, sample.length)], "all"
    if how != ROLES:
        return _within(parse_supervised(how), sample), "spans"
    if tokens is None:
        raise SampleError("--supervised roles", expected="a tokenizer", where=sample.path, hint="name it: --tokenizer")
    found = assistant_spans(sample.ids.tolist(), tokens)
    if found is None:
        raise SampleError(
            "--supervised roles: no marks of a known chat template in the text",
            where=sample.path,
            hint="name spans, such as --supervised 40:212, and check that the tokenizer is the target's",
        )
    return found[0], f"roles ({found[1]})"


def _within(spans: Sequence[tuple[int, int | None]], sample: Sample) -> Spans:
    for start, _ in spans:
        if start >= sample.length:
            raise SampleError(
                f"--supervised from token {start}", expected=f"one of {sample.length} tokens", where=sample.path
            )
    return [(start, sample.length if stop is None else min(stop, sample.length)) for start, stop in spans]


def _differing(one: torch.Tensor, other: torch.Tensor) -> list[int]:
    return [int(i) for i in (one != other).nonzero().flatten()]


def _differences(tokens: Sequence[int]) -> str:
    if not tokens:
        return "the same tokens"
    return f"1 differs, at token {tokens[0]}" if len(tokens) == 1 else f"{len(tokens)} differ, from token {tokens[0]}"


def mask_facts(sample: Sample, tokens: TokenText | None) -> list[str]:
    """What the loss mask of `sample` is, a line each: how many tokens, from where to where, how much of the thinking,
    and whether the chat's own marks agree. Not made safe for a screen except for token text.
    """
    facts = [_counts(sample), *_edges(sample, tokens)]
    if tokens is None:
        return facts
    text = LaidText(sample.ids.tolist(), tokens)
    facts += _thinking_facts(sample, text)
    found = find_turns(text)
    if found is not None:
        facts.append(f"roles ({found[1]}): {_agreement(sample, found[0])}")
    return facts


def _counts(sample: Sample) -> str:
    if sample.mask is None:
        return f"no loss mask: all {sample.length} tokens count"
    count = int(sample.mask.sum())
    if not count:
        return f"0 of {sample.length} tokens supervised: no row of this sample counts"
    spans = sum(1 for _ in _runs(sample.mask.tolist()))
    return f"{count} of {sample.length} tokens supervised, in {spans} span{'' if spans == 1 else 's'}"


def _runs(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    start = 0
    for i in range(1, len(mask) + 1):
        if i == len(mask) or mask[i] != mask[start]:
            if mask[start]:
                yield start, i
            start = i


def _edges(sample: Sample, tokens: TokenText | None) -> list[str]:
    counted = [] if sample.mask is None else sample.mask.nonzero().flatten().tolist()
    if not counted:
        return []
    first, last = (f"{i} {piece(tokens, int(sample.ids[i]))}" for i in (counted[0], counted[-1]))
    return [f"first supervised token {first}, last {last}"]


def _thinking_facts(sample: Sample, text: LaidText) -> list[str]:
    """The share of supervised tokens between think tags: a mask that leaves thinking out is a known fault."""
    inside = [i for span in _thinking(text) for i in span]
    if not inside:
        return []
    mask = sample.supervised
    hits, count = int(mask[inside].sum()), int(mask.sum())
    share = f", {hits / count:.0%} of the supervised" if count else ""
    return [f"thinking: {hits} of {len(inside)} tokens between think tags supervised{share}"]


def thinking_spans(sample: Sample, tokens: TokenText) -> list[range]:
    """The tokens of `sample` between think tags."""
    return list(_thinking(LaidText(sample.ids.tolist(), tokens)))


def _thinking(text: LaidText) -> Iterator[range]:
    """The tokens between each pair of think tags, tags left out; thinking that the recording cuts goes to its end."""
    for begin, end in _THINKING:
        at = text.data.find(begin)
        while at >= 0:
            start = at + len(begin)
            stop = text.data.find(end, start)
            yield text.between(start, stop if stop >= 0 else len(text.data))
            at = text.data.find(begin, stop) if stop >= 0 else -1


def _agreement(sample: Sample, turns: Spans) -> str:
    """How the mask differs from the assistant's turns, in the words of the known reasons where one fits."""
    import torch

    if not turns:
        return "no answer of the assistant in the text"
    roles = torch.zeros(sample.length, dtype=torch.bool)
    for start, stop in turns:
        roles[start:stop] = True
    mask = sample.supervised
    differing = _differing(mask, roles)
    if not differing:
        return f"the same {int(roles.sum())} tokens"
    counts = f"{int(roles.sum())} tokens, the mask {int(mask.sum())}; {_differences(differing)}"
    reason = _reason(mask, roles, turns, set(differing))
    return f"{counts}: {reason}" if reason else counts


def _reason(mask: torch.Tensor, roles: torch.Tensor, turns: Spans, differing: set[int]) -> str:
    starts, ends = {start for start, _ in turns}, {stop for _, stop in turns if stop < mask.numel()}
    with_ends = roles.clone()
    with_ends[list(ends)] = True
    last = turns[-1][0]
    reasons = (
        (not mask.any(), "nothing is supervised"),
        (bool(mask.all()), "every token is supervised"),
        (differing == ends, "the mask also holds the end-of-turn tokens, as speculators 0.9 records"),
        (differing == starts, "the first token of each answer is not supervised"),
        (any(_moved(mask, wanted) for wanted in (roles, with_ends)), "the mask stands one token late"),
        (any(_moved(wanted, mask) for wanted in (roles, with_ends)), "the mask stands one token early"),
        (not mask[:last].any() and differing - ends <= set(range(last)), "only the last answer is supervised"),
    )
    return next((words for holds, words in reasons if holds), "")


def _moved(late: torch.Tensor, early: torch.Tensor) -> bool:
    return bool((late[1:] == early[:-1]).all())

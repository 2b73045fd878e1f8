"""K03: whose rows the head holds, told by the target's head: many trainers start from the target's rows, or keep them.

Where rows of the drafter's head are clearly those of single tokens of the target, the map must name these tokens.
Predicts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, ERROR, OK, TW, Finding
from drafter.checks.registry import WEIGHTS, check
from drafter.checks.vocab_size import wrong_vocab_size
from drafter.files.stored import FLOATS, StoredTensor

KIND = "K03"
ROWS = 64  # of the drafter's head that are looked for in the target's
LIKE = 0.5  # cosine with one row of the target from which it is that token's; of strangers the best is seldom above
CLEAR = 0.1  # and by which the mapped token's must be below it
SHARE = 0.1  # of the rows that are known: fewer may be twins
EXAMPLES = 5
_BLOCK = 1 << 23  # numbers of the target's head in memory at once
_REPORTS = ("SafeAILab/EAGLE#222", "lightseekorg/TorchSpec#38")


@dataclass(frozen=True)
class HeadRows:
    """Of `looked` rows of the head, `known` are like one token of the target; `others` are (row, its token, the mapped
    token), where these differ clearly."""

    looked: int
    known: int
    others: tuple[tuple[int, int, int], ...]

    @property
    def wrong(self) -> bool:
        """Whether the map names other tokens, and not simply another rule (`head-rows` says that)."""
        ruled = sum(token in (row, said - row) for row, token, said in self.others)
        return len(self.others) > max(1, SHARE * self.known) and 2 * ruled < len(self.others)


@check("head-rows-are-the-mapped-tokens", KIND, (CKPT, TW), _REPORTS, WEIGHTS)
def mapped_rows(case: Case) -> Iterable[Finding]:
    """Rows of the drafter's head that are the target's rows of other tokens than d2t says."""
    found = head_rows(case)
    if found is None or 2 * found.known < found.looked:
        return  # a head of its own
    evidence = {
        "rows looked at": found.looked,
        "like one token of the target": found.known,
        "of another token than mapped": len(found.others),
        "examples": [f"row {row} is token {token}, d2t says {said}" for row, token, said in found.others[:EXAMPLES]],
    }
    if not found.wrong:
        title = "the head's rows are the target's of the tokens that d2t says"
        yield Finding("head-rows-are-the-mapped-tokens", KIND, OK, title, evidence, reports=_REPORTS)
        return
    row, token, said = found.others[0]
    title = (
        f"{len(found.others)} of {found.known} rows of lm_head are the target's rows of other tokens than d2t says: "
        f"row {row} is token {token}, mapped to {said}"
    )
    fix = "take d2t and t2d from the run that trained lm_head"
    yield Finding("head-rows-are-the-mapped-tokens", KIND, ERROR, title, evidence, fix, _REPORTS, "checkpoint", 84)


def head_rows(case: Case) -> HeadRows | None:
    """None without both heads of one width, or under a wrong vocab_size. Raises CheckpointError without a map."""
    return case.once("head rows", lambda: _head_rows(case))


def _head_rows(case: Case) -> HeadRows | None:
    ours = case.checkpoint.tensors.get("lm_head.weight")
    theirs = case.target.head if case.target is not None else None
    if ours is None or theirs is None or not _fit(ours, theirs) or wrong_vocab_size(case) is not None:
        return None
    rows = ours.shape[0]
    picked = [rows * i // min(rows, ROWS) for i in range(min(rows, ROWS))]
    mapped = case.vocab().target_ids[picked].tolist()
    return _looked_for(ours, picked, theirs, mapped, case.poll)


def _fit(ours: StoredTensor, theirs: StoredTensor) -> bool:
    floats = ours.dtype in FLOATS and theirs.dtype in FLOATS
    return floats and len(ours.shape) == len(theirs.shape) == 2 and ours.shape[1] == theirs.shape[1]


def _looked_for(
    ours: StoredTensor, picked: list[int], theirs: StoredTensor, mapped: list[int], poll: Callable[[], None]
) -> HeadRows:
    import torch
    from torch.nn.functional import normalize

    wanted = normalize(ours.gather(picked).float().nan_to_num(0, 0, 0), dim=1)  # [n, H]
    best, at, said = torch.full((len(picked),), -1.0), torch.zeros(len(picked), dtype=torch.long), torch.tensor(mapped)
    own = torch.full((len(picked),), -1.0)
    step = max(1, _BLOCK // ours.shape[1])
    for start in range(0, theirs.shape[0], step):
        poll()
        block = theirs.rows(start, min(start + step, theirs.shape[0])).float().nan_to_num(0, 0, 0)
        cosines = wanted @ normalize(block, dim=1).T  # [n, rows of the block]
        top, index = cosines.max(1)
        at, best = torch.where(top > best, index + start, at), torch.maximum(top, best)
        here = (said >= start) & (said < start + len(block))
        own[here] = cosines[here, said[here] - start]
    known = best >= LIKE
    other = known & (best - own > CLEAR)
    found = [(picked[i], int(at[i]), mapped[i]) for i in other.nonzero().flatten().tolist()]
    return HeadRows(len(picked), int(known.sum()), tuple(found))

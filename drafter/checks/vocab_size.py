"""The size of the target's vocabulary, where the tensors and the target say another one than the config does.

Decides only whose number is wrong: what a checkpoint of a wrong vocab_size looks like otherwise is no matter here.
"""

from __future__ import annotations

from dataclasses import dataclass

from drafter.checks.case import Case
from drafter.files.stored import INTEGERS

_MAX_MAP = 1 << 24  # ids; more than any vocabulary


@dataclass(frozen=True)
class VocabSize:
    """`key` of the config says `found`; `wanted` is what `witnesses` (who says it -> its size) say."""

    key: str
    found: int
    wanted: int
    witnesses: dict[str, int]

    @property
    def words(self) -> str:
        *names, last = self.witnesses
        return f"it is {self.wanted} by {', '.join(names)}{' and ' if names else ''}{last}"


def wrong_vocab_size(case: Case) -> VocabSize | None:
    """None where somebody bears the config out, or where fewer than two say otherwise.

    One is enough where the config has the number of the draft vocabulary in its place and a map leads beyond it. A
    longer embedding may be padded and says nothing against a vocab_size that the marks or the target have too.
    """
    return case.once("wrong vocab_size", lambda: _wrong(case))


def _wrong(case: Case) -> VocabSize | None:
    config = case.files.config
    if config is None:
        return None
    said, stated = _said(case), config.vocab_size
    if not said or stated in said.values():
        return None
    wanted = next(iter(said.values()))  # the marks have exactly one for each token, an embedding may have more
    agree = {who: size for who, size in said.items() if size == wanted}
    if len(agree) < 2 and not (stated < wanted and stated == _drafted(case) and _leads_beyond(case, stated)):
        return None
    evidence = config.evidence.get("vocab_size")
    return VocabSize(evidence.key if evidence is not None else "vocab_size", stated, wanted, agree)


def _said(case: Case) -> dict[str, int]:
    """Who says a size of the target's vocabulary, the most exact first."""
    tensors = case.files.tensors
    sizes = {
        "the length of t2d": _rows(case, "t2d"),
        "the target's config": case.target.vocab_size if case.target is not None else None,
        "the rows of embed_tokens": _rows(case, "embed_tokens.weight"),
    }
    found = {who: size for who, size in sizes.items() if size}
    return found if tensors else {}


def _rows(case: Case, name: str) -> int | None:
    tensor = case.files.tensors.get(name)
    return tensor.shape[0] if tensor is not None and tensor.shape else None


def _leads_beyond(case: Case, size: int) -> bool:
    """Whether d2t, read as servers do, names ids that a vocabulary of `size` does not have, or the marks do."""
    d2t, marks = case.files.tensors.get("d2t"), _rows(case, "t2d") or 0
    if d2t is None or len(d2t.shape) != 1 or d2t.dtype not in INTEGERS or not 0 < d2t.numel <= _MAX_MAP:
        return marks > size
    import torch

    return marks > size or int((torch.arange(d2t.numel) + d2t.read().long()).max()) >= size


def _drafted(case: Case) -> int | None:
    stated = case.files.stated("draft_vocab_size")
    return _rows(case, "lm_head.weight") or _rows(case, "d2t") or (stated if type(stated) is int else None)

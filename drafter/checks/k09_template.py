"""The recorded text against the tokenizer's chat template: another one, or none, was in use when it was recorded.

The template is read, never run: its marks are looked for in the text, and what the recording's own files say of it is
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drafter.checks.case import Case
from drafter.checks.finding import CKPT, NOTE, OK, SMP, TOK, WARNING, Finding
from drafter.checks.registry import SAMPLE, check
from drafter.errors import DrafterError
from drafter.files.json_file import read_json
from drafter.sample.text.chat_template import ChatTemplate, chat_template, find_marks
from drafter.sample.text.tokens import running

REPORTS = ("sgl-project/SpecForge#392", "sgl-project/SpecForge@1de70d18", "SafeAILab/EAGLE#79")
MOST_TOKENS = 4096  # of each sample that are read for marks
# what producers and people write beside recordings
_META = ("data_config.json", "metadata.json", "meta.json", "config.json", "dataset_info.json", "tokenizer_config.json")
_FIX = "record the text again with the template that is served; check the cache of tokenised data for an older one"


@check("text-has-the-template-s-marks", "K09", (CKPT, SMP, TOK), REPORTS, SAMPLE)
def marks(case: Case) -> Iterator[Finding]:
    """Whether any of the template's marks occurs in each sample's text."""
    assert case.tokens is not None
    template = chat_template(case.tokens.path.parent)
    if template is None or not template.marks:
        return
    without, others = [], dict[str, None]()
    for sample in case.samples:
        case.poll()
        text = running(case.tokens, sample.ids[:MOST_TOKENS].tolist())
        if not any(mark in text for mark in template.marks):
            without.append(sample.path.name)
            others |= dict.fromkeys(find_marks(text))
    evidence: dict[str, Any] = {"template": template.path.name, "its marks": template.marks[:8]}
    if not without:
        title = f"the text of all {len(case.samples)} samples has marks of the tokenizer's chat template"
        yield Finding("text-has-the-template-s-marks", "K09", OK, title, evidence)
        return
    what = f"but {', '.join(list(others)[:4])}" if others else "nor of any other"
    # text that never was a chat is no fault; other marks are another template's
    severity = WARNING if others or len(without) < len(case.samples) else NOTE
    yield Finding(
        "text-has-the-template-s-marks",
        "K09",
        severity,
        f"{len(without)} of {len(case.samples)} samples have no mark of the tokenizer's chat template, {what}",
        {**evidence, "samples": without[:4]},
        _FIX,
        REPORTS,
        "sample",
        54,
    )


@check("template-is-the-recorded-one", "K09", (CKPT, SMP, TOK), ("sgl-project/SpecForge@1de70d18",), SAMPLE)
def recorded(case: Case) -> Iterator[Finding]:
    """What the files beside the samples say of the template, as its text or its hash."""
    assert case.tokens is not None
    template = chat_template(case.tokens.path.parent)
    if template is None:
        return
    for path, key, said in _said(case):
        same = template.is_named_by(said)
        if same is None:
            continue
        title = "the chat template is the one that the recording names"
        if not same:
            title = f"{path.name} names another chat template than the tokenizer's: {key}"
        yield Finding(
            "template-is-the-recorded-one",
            "K09",
            OK if same else WARNING,
            title,
            {"file": path.name, key: said[:64], "template": template.path.name, "its sha256": _sha256(template)},
            "" if same else _FIX,
            ("sgl-project/SpecForge@1de70d18",),
            "sample",
            54,
        )


def _sha256(template: ChatTemplate) -> str:
    import hashlib

    return hashlib.sha256(template.text.encode()).hexdigest()[:16]


def _said(case: Case) -> Iterator[tuple[Path, str, str]]:
    """(file, key, text) of everything about a chat template beside the samples, or one folder above."""
    assert case.tokens is not None
    own = case.tokens.path.parent
    folders = dict.fromkeys(folder for s in case.samples for folder in (s.path.parent, s.path.parent.parent))
    for folder in list(folders)[:8]:
        for name in _META if folder != own else ():
            try:
                table = read_json(folder / name) if (folder / name).is_file() else {}
            except DrafterError:
                continue
            for key, value in table.items():
                if "chat_template" in key and isinstance(value, str):
                    yield folder / name, key, value

"""The chat template against the recorded text and what the recording says of it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter.checks.case import Case
from drafter.checks.finding import Finding
from drafter.checks.k09_template import marks, recorded
from drafter.sample.sample import Sample
from drafter.sample.text.chat_template import chat_template, find_marks
from tests.drafter.byte_chat import chat

MARKS = ("<|im_start|>", "<|im_end|>", "[INST]")
CHAT = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n«hello»<|im_end|>\n"
OTHER = "[INST] hi [/INST]«hello»"
TEMPLATE = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor %}"


def opened(folder: Path, *texts: str) -> Case:
    made = [chat(folder / "tokenizer", text, MARKS) for text in texts]
    (folder / "samples").mkdir(exist_ok=True)
    case = Case.__new__(Case)
    case.tokens, case.poll = made[0].tokens, lambda: None
    case.samples = tuple(
        Sample(folder / f"samples/data_{i}.pt", "test", torch.tensor(one.ids), None, ()) for i, one in enumerate(made)
    )
    return case


def write(folder: Path, template: object, where: str = "chat_template.jinja") -> None:
    path = folder / "tokenizer" / where
    if where.endswith(".jinja"):
        path.write_text(str(template))
    else:
        table = json.loads(path.read_text()) if path.is_file() else {}
        path.write_text(json.dumps({**table, "chat_template": template}))


def one(case: Case) -> Finding:
    (found,) = marks(case)
    return found


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json", "chat_template.json"])
def test_text_of_the_template_is_right(tmp_path: Path, where: str) -> None:
    case = opened(tmp_path, CHAT)
    write(tmp_path, TEMPLATE, where)
    found = one(case)
    assert found.severity == "ok" and found.evidence["template"] == where
    assert found.evidence["its marks"] == ("<|im_start|>", "<|im_end|>")


def test_several_templates_by_name(tmp_path: Path) -> None:
    opened(tmp_path, CHAT)
    named = [{"name": "tool_use", "template": "[INST]"}, {"name": "default", "template": TEMPLATE}, 3]
    write(tmp_path, named, "tokenizer_config.json")
    found = chat_template(tmp_path / "tokenizer")
    assert found is not None and found.text == TEMPLATE


def test_text_of_another_template_is_a_warning(tmp_path: Path) -> None:
    case = opened(tmp_path, OTHER, OTHER)
    write(tmp_path, TEMPLATE)
    found = one(case)
    assert found.severity == "warning" and "2 of 2 samples" in found.title and "[INST]" in found.title
    assert "<|im_start|>" not in found.title


def test_some_without_marks_are_a_warning_and_all_are_a_note(tmp_path: Path) -> None:
    case = opened(tmp_path, CHAT, "no chat at all")
    write(tmp_path, TEMPLATE)
    assert (one(case).severity, one(case).evidence["samples"]) == ("warning", ["data_1.pt"])
    case = opened(tmp_path, "plain text", "no chat at all")
    assert one(case).severity == "note" and "nor of any other" in one(case).title


@pytest.mark.parametrize("template", [None, "{{ messages }}", b"\xff\xfe"])
def test_without_marks_nothing_is_said(tmp_path: Path, template: object) -> None:
    case = opened(tmp_path, CHAT)
    if isinstance(template, bytes):
        (tmp_path / "tokenizer/chat_template.jinja").write_bytes(template)
    elif template is not None:
        write(tmp_path, template)
    assert not list(marks(case))


@pytest.mark.parametrize("name", ["md5", "sha1", "sha256"])
@pytest.mark.parametrize("length", [8, 16, None])
def test_a_hash_names_the_template(tmp_path: Path, name: str, length: int | None) -> None:
    case = opened(tmp_path, CHAT)
    write(tmp_path, TEMPLATE)
    digest = hashlib.new(name, TEMPLATE.encode()).hexdigest()[:length]
    meta = tmp_path / "samples/data_config.json"
    meta.write_text(json.dumps({"chat_template_hash": digest, "other": 3}))
    (found,) = recorded(case)
    assert found.severity == "ok"
    write(tmp_path, TEMPLATE + " ")
    (found,) = recorded(case)
    assert found.severity == "warning" and "chat_template_hash" in found.title and found.fix


def test_a_recorded_template_is_compared_as_text_also_one_folder_above(tmp_path: Path) -> None:
    case = opened(tmp_path, CHAT)
    write(tmp_path, TEMPLATE)
    (tmp_path / "metadata.json").write_text(json.dumps({"chat_template": TEMPLATE + "\n"}))
    assert [one.severity for one in recorded(case)] == ["ok"]
    (tmp_path / "metadata.json").write_text(json.dumps({"chat_template": TEMPLATE.replace("role", "from")}))
    assert [one.severity for one in recorded(case)] == ["warning"]
    (tmp_path / "metadata.json").write_text(json.dumps({"chat_template": "qwen"}))  # a name that nobody can look up
    assert not list(recorded(case))
    (tmp_path / "metadata.json").write_text("{")
    assert not list(recorded(case))


def test_the_tokenizer_s_own_files_are_not_what_the_recording_says(tmp_path: Path) -> None:
    case = opened(tmp_path, CHAT)
    write(tmp_path, TEMPLATE)
    write(tmp_path, "{{ another }}", "tokenizer_config.json")
    case.samples = tuple(replace(s, path=tmp_path / "tokenizer" / s.path.name) for s in case.samples)
    assert not list(recorded(case))


def test_marks_are_those_that_no_one_types() -> None:
    text = "<|im_start|>user <b>bold</b> [INST] <\uff5cUser\uff5c> <start_of_turn> | <|a b|> [x] <|im_start|>"
    assert find_marks(text) == ("<|im_start|>", "[INST]", "<\uff5cUser\uff5c>", "<start_of_turn>")

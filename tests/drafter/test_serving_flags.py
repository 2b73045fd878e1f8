"""Sections 6.1 and 6.2 of checkpoints.md: launch lines as people paste them, and what each version makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.errors import WiringError
from drafter.files.find import find_checkpoints
from drafter.serving.effective import CHANGED, NOTE, REFUSED, WRONG, DrafterFacts, Effective, Override, effective_json
from drafter.serving.flags import MAX_TEXT, Asked, from_table, parse_flags
from drafter.serving.rules import ruled
from drafter.serving.serve import drafter_facts, effective
from drafter.serving.server import Server
from tests import tiny
from tests.drafter.helpers import refused

torch.set_num_threads(1)

FOUNDING = (
    "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d --speculative-num-steps 1 "
    "--speculative-eagle-topk 1 --speculative-num-draft-tokens 16"
)
READ = ("0.4.6.post5", "0.5.2", "0.5.6", "0.5.9", "0.5.11", "0.5.14", "0.5.23")
EAGLE3 = DrafterFacts(is_eagle3=True, fc_inputs=3)
SPECULATORS = DrafterFacts(is_eagle3=True, fc_inputs=3, dialect="speculators", speculative_tokens=5)


def sglang(flags: str, version: str = "0.5.9", drafter: DrafterFacts = EAGLE3) -> Effective:
    return effective(parse_flags(flags), f"sglang@{version}", drafter)


def vllm(table: dict[str, Any], drafter: DrafterFacts = EAGLE3, more: str = "") -> Effective:
    return effective(parse_flags(f"vllm serve /m {more} --speculative-config '{json.dumps(table)}'"), "", drafter)


def eagle3(steps: int, topk: int, tokens: int | None = None, more: str = "") -> str:
    line = f"--speculative-algorithm EAGLE3 --speculative-draft-model-path /d --speculative-num-steps {steps} "
    tokens_flag = "" if tokens is None else f"--speculative-num-draft-tokens {tokens} "
    return f"{line}--speculative-eagle-topk {topk} {tokens_flag}{more}"


def numbers(made: Effective) -> tuple[int | None, ...]:
    return made.steps, made.topk, made.draft_tokens, made.max_accept_length


def override(made: Effective, what: str, kind: str = "") -> Override:
    return next(o for o in made.overrides if o.what == what and (not kind or o.kind == kind))


def kinds(made: Effective) -> list[str]:
    return [o.kind for o in made.overrides if o.kind != NOTE]


# launch lines


def test_a_pasted_line_with_continuations_both_forms_and_other_flags() -> None:
    asked = parse_flags(
        "$ CUDA_VISIBLE_DEVICES=0,1 SGLANG_ENABLE_SPEC_V2=1 python3 -m sglang.launch_server \\\n"
        "  --model-path /models/Kimi --trust-remote-code --tp 8 \\\r\n"
        "  --speculative-algorithm=EAGLE3 --speculative-draft-model-path '/my drafts/7' \\\n"
        "  --speculative-num-steps 3 --speculative-eagle-topk=1 --speculative-num-draft-tokens 4 --host 0.0.0.0\n"
    )
    assert asked == Asked(
        engine="sglang",
        algorithm="EAGLE3",
        draft_model="/my drafts/7",
        model="/models/Kimi",
        steps=3,
        topk=1,
        draft_tokens=4,
        tp=8,
        spec_v2=True,
        ignored=("--trust-remote-code", "--host"),
    )


@pytest.mark.parametrize(
    ("line", "engine", "said"),
    [
        ("sglang serve --model-path /m", "sglang", {"model": "/m"}),
        ("/usr/bin/vllm serve /m -tp 2", "vllm", {"tp": 2}),
        ("python -m vllm.entrypoints.openai.api_server --model /m", "vllm", {"model": "/m"}),
        ("--speculative-algo EAGLE3 --speculative-draft /d", "sglang", {"algorithm": "EAGLE3", "draft_model": "/d"}),
        ("--speculative-num-s 2", "sglang", {"steps": 2}),
        ('{"method": "eagle3", "num_speculative_tokens": 3}', "vllm", {"method": "eagle3", "speculative_tokens": 3}),
        ("--speculative_config.method eagle3 --speculative-config.num_speculative_tokens=4", "vllm",
         {"method": "eagle3", "speculative_tokens": 4}),
        ("--speculative-model /d --num-speculative-tokens 5", "vllm",
         {"draft_model": "/d", "speculative_tokens": 5, "old_form": True}),
        ("--spec-method eagle3 --spec-model /d --spec-tokens 2", "vllm",
         {"method": "eagle3", "draft_model": "/d", "speculative_tokens": 2}),
        ("--page-size 64", "", {"page_size": 64}),
    ],
)  # fmt: skip
def test_forms_of_flags(line: str, engine: str, said: dict[str, Any]) -> None:
    asked = parse_flags(line)
    assert asked.engine == engine
    assert {name: getattr(asked, name) for name in said} == said


def test_an_ambiguous_beginning_of_a_flag_is_not_completed() -> None:
    asked = parse_flags("--speculative-num 3 --speculative-algorithm EAGLE3")
    assert (asked.steps, asked.draft_tokens, asked.ignored) == (None, None, ("--speculative-num",))


def test_of_a_flag_given_twice_the_last_counts_and_it_is_said() -> None:
    asked = parse_flags("--speculative-num-steps 3 --speculative-num-steps 5")
    assert asked.steps == 5
    assert "twice" in asked.notes[0]
    assert "twice" in " ".join(sglang("--speculative-num-steps 3 " + eagle3(5, 1)).notes)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--speculative-num-steps three", "--speculative-num-steps 'three'; expected a whole number >= 1"),
        ("--speculative-num-steps 0", "'0'"),
        ("--speculative-num-steps -1", "'-1'"),
        ("--speculative-num-steps 99999999", "expected a whole number"),
        ("--speculative-num-steps", "without a value"),
        ("--speculative-num-steps --tp 8", "without a value"),
        ("--speculative-config '{method: eagle3}'", "not JSON"),
        ("--speculative-config {\"method\":\"eagle3\"}", "single quotes"),
        ("--speculative-config '[1]'", "expected a JSON table"),
        ("--speculative-config '{\"num_speculative_tokens\": true}'", "expected a whole number"),
        ("--speculative-config '{\"num_speculative_tokens\": 2.5}'", "expected a whole number"),
        ("--speculative-config '" + "[" * 20000 + "'", "not JSON"),
        ("vllm serve 'unclosed", "paste the whole line"),
        ("--speculative-num-steps 1 --speculative-config '{}'", "flags of two engines"),
        ("x" * (MAX_TEXT + 1), "launch line of at most"),
    ],
)  # fmt: skip
def test_flags_that_cannot_be_meant(line: str, said: str) -> None:
    with refused(WiringError, said):
        parse_flags(line)


def test_the_servers_own_words_are_flags_too() -> None:
    table = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_eagle_topk": "1",
             "speculative_num_draft_tokens": "None", "page_size": True, "attention_backend": "fa3"}  # fmt: skip
    assert from_table(table) == Asked(engine="sglang", algorithm="EAGLE3", steps=3, topk=1, attention_backend="fa3")
    assert not from_table({"page_size": 64, "speculative_num_steps": "many"}).speculates


# which rule a version has


def test_a_version_in_between_is_certain_only_where_its_neighbours_agree() -> None:
    read = {"0.5.2": "a", "0.5.6": "b", "0.5.9": "b"}
    for version, value, certain, words in (
        ("0.5.6", "b", True, "sglang 0.5.6"),
        ("0.5.7", "b", True, "sglang 0.5.6 and 0.5.9"),
        ("0.5.4", "a", False, "changed between sglang 0.5.2 and 0.5.6: that of 0.5.2 is taken"),
        ("0.5.1", "a", False, "older than 0.5.2"),
        ("0.5.10", "b", False, "newer than 0.5.9"),
    ):
        found = ruled(Server.parse(f"sglang@{version}"), read)
        assert (found.value, found.certain) == (value, certain)
        assert words in found.words


# SGLang


@pytest.mark.parametrize("version", READ)
def test_the_founding_story_in_every_version(version: str) -> None:
    made = sglang(FOUNDING, version)
    assert numbers(made) == (1, 1, 2, 2)
    assert (made.drafted, made.verified, made.tree_nodes, made.refused) == (1, 2, None, False)
    clamp = override(made, "draft tokens")
    assert (clamp.asked, clamp.effective, clamp.kind) == ("16", "2", CHANGED)
    assert "adjusted to speculative_num_steps + 1" in clamp.why
    assert version in clamp.source and "0.4.6.post5 to 0.5.23" in clamp.source
    place = "arg_groups/speculative_hook.py" if version in ("0.5.14", "0.5.23") else "server_args.py"
    assert clamp.source.startswith(place)


def test_without_a_version_the_newest_known_is_meant_and_said() -> None:
    made = effective(parse_flags(FOUNDING))
    assert made.server == "sglang@0.5.23"
    assert made.notes[0].startswith("no version given")
    assert "newer than what was read" in sglang(FOUNDING, "0.6.0").notes[0]


@pytest.mark.parametrize("steps", range(1, 9))
@pytest.mark.parametrize("tokens", [None, 2, 4, 16])
def test_a_chain_is_always_one_token_longer_than_its_steps(steps: int, tokens: int | None) -> None:
    made = sglang(eagle3(steps, 1, tokens))
    assert numbers(made) == (steps, 1, steps + 1, steps + 1)
    assert ("draft tokens" in [o.what for o in made.overrides]) == (tokens != steps + 1)


def brute_nodes(steps: int, topk: int) -> int:
    """The candidates that a tree offers, by growing it: topk kept at each step, each with topk children."""
    kept, seen = 1, 0
    for _ in range(steps):
        children = kept * topk
        seen += children
        kept = min(children, topk)
    return seen


@pytest.mark.parametrize(("steps", "topk"), [(s, k) for s in (1, 2, 3, 5, 7) for k in (2, 4, 8)])
@pytest.mark.parametrize("tokens", [2, 4, 8, 16, 64])
def test_trees_have_so_many_candidates_and_no_longer_paths(steps: int, topk: int, tokens: int) -> None:
    made = sglang(eagle3(steps, topk, tokens, "--page-size 1"))
    nodes = brute_nodes(steps, topk)
    assert made.tree_nodes == nodes
    assert made.max_accept_length == min(steps, tokens - 1, nodes) + 1
    assert (WRONG in kinds(made)) == (tokens - 1 > nodes)
    assert made.verified == min(tokens, nodes + 1)
    shallow = [o for o in made.overrides if o.what == "depth"]
    assert bool(shallow) == (tokens - 1 < steps)


def test_a_tree_needs_its_number_of_tokens() -> None:
    made = sglang(eagle3(3, 4))
    assert made.refused and made.max_accept_length is None
    assert override(made, "draft tokens").kind == REFUSED


@pytest.mark.parametrize(
    ("version", "target", "chosen"),
    [
        ("0.4.6.post5", "DeepseekV3ForCausalLM", (5, 4, 8)),
        ("0.5.2", "DeepseekV3ForCausalLM", (3, 1, 4)),
        ("0.5.2", "Qwen3ForCausalLM", (5, 4, 8)),
        ("0.5.6", "Qwen3ForCausalLM", (5, 4, 8)),
        ("0.5.9", "Qwen3ForCausalLM", (3, 1, 4)),
        ("0.5.9", "LlamaForCausalLM", (5, 4, 8)),
        ("0.5.23", "Grok1ForCausalLM", (5, 4, 8)),
        ("0.5.23", "DeepseekV3ForCausalLM", (3, 1, 4)),
    ],
)  # fmt: skip
def test_what_the_server_chooses_itself(version: str, target: str, chosen: tuple[int, int, int]) -> None:
    facts = DrafterFacts(is_eagle3=True, fc_inputs=3, target_architecture=target)
    made = sglang("--speculative-algorithm EAGLE3 --speculative-draft-model-path /d", version, facts)
    assert (made.steps, made.topk, made.draft_tokens) == chosen
    assert target in override(made, "steps, topk, draft tokens").why


def test_what_the_server_chooses_for_an_unknown_target_is_said() -> None:
    line = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d"
    why = override(sglang(line, "0.5.9"), "steps, topk, draft tokens").why
    assert "target is not known" in why and "Llama and Grok get 5, 4, 8" in why
    assert "3, 1, 4" in override(sglang(line, "0.5.2"), "steps, topk, draft tokens").why
    assert "not known" not in override(sglang(line, "0.4.6.post5"), "steps, topk, draft tokens").why
    unread = override(sglang(line, "0.5.7"), "steps, topk, draft tokens").source
    assert "changed between sglang 0.5.6 and 0.5.9" in unread


@pytest.mark.parametrize("flag", ["--speculative-eagle-topk 1", "--speculative-num-draft-tokens 4"])
def test_choosing_itself_takes_none_of_the_three(flag: str) -> None:
    made = sglang(f"--speculative-algorithm EAGLE3 --speculative-draft-model-path /d {flag}")
    assert made.refused and override(made, "steps").kind == REFUSED
    assert numbers(made) == (None, None, None, None)


def test_steps_without_topk_do_not_start() -> None:
    line = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d --speculative-num-steps 3"
    assert override(sglang(line), "topk").kind == REFUSED


@pytest.mark.parametrize("name", ["EAGLE", "NEXTN"])
def test_eagle_for_an_eagle3_head_is_the_length_of_one(name: str) -> None:
    line = eagle3(3, 1, 4).replace("EAGLE3", name)
    wrong = override(sglang(line), "algorithm", WRONG)
    assert "1.00" in wrong.why and "EAGLE3" in wrong.why and "3 states" in wrong.why
    assert wrong.source == "sgl-project/sglang#21272"
    assert sglang(line).overrides[0] == wrong, "the worst comes first"
    assert WRONG not in kinds(sglang(line, drafter=DrafterFacts())), "without a drafter nothing is said of it"
    if name == "NEXTN":
        assert override(sglang(line), "algorithm", CHANGED).effective == "EAGLE"


def test_without_an_algorithm_nothing_is_drafted() -> None:
    made = sglang("--speculative-num-steps 3 --speculative-eagle-topk 1")
    assert (made.algorithm, made.max_accept_length) == ("none", None)
    assert override(made, "algorithm").kind == WRONG


def test_p_eagle_and_a_missing_draft_model() -> None:
    assert sglang(FOUNDING, drafter=DrafterFacts(is_eagle3=True, parallel=True)).refused
    line = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"
    assert override(sglang(line), "draft model").kind == WRONG


@pytest.mark.parametrize(
    ("version", "backend", "page", "outcome"),
    [
        ("0.4.6.post5", "flashinfer", 64, "lowered"),
        ("0.5.2", "flashinfer", 64, "runs"),
        ("0.5.2", "fa3", 64, "refused"),
        ("0.5.9", "fa3", 64, "runs"),
        ("0.5.9", "triton", 64, "refused"),
        ("0.5.14", "triton", 64, "runs"),
        ("0.5.23", "flashmla", 64, "refused"),
        ("0.5.23", "flashmla", 1, "runs"),
        ("0.5.2", "trtllm_mha", 1, "refused"),
    ],
)  # fmt: skip
def test_trees_with_pages(version: str, backend: str, page: int, outcome: str) -> None:
    made = sglang(eagle3(3, 4, 8, f"--page-size {page} --attention-backend {backend}"), version)
    assert made.refused == (outcome == "refused")
    if outcome == "lowered":
        assert numbers(made) == (3, 1, 4, 4)
        assert [o.what for o in made.overrides if o.kind == CHANGED] == ["topk", "draft tokens"]
    if outcome == "runs":
        assert numbers(made) == (3, 4, 8, 4)


def test_pages_that_nobody_named_are_said() -> None:
    assert "no --page-size given" in " ".join(sglang(eagle3(3, 4, 8)).notes)
    assert "no attention backend is given" in " ".join(sglang(eagle3(3, 4, 8, "--page-size 64")).notes)


def test_spec_v2_and_trees() -> None:
    tree = eagle3(3, 4, 8, "--page-size 1")
    v2 = f"SGLANG_ENABLE_SPEC_V2=True python -m sglang.launch_server {tree}"
    assert sglang(v2, "0.5.9").refused
    assert not sglang(v2, "0.5.6").refused
    assert not sglang(tree, "0.5.9").refused
    assert not sglang(v2.replace("True", "0"), "0.5.9").refused
    assert override(sglang(tree, "0.5.11"), "overlap schedule").kind == NOTE
    assert not sglang(v2, "0.5.23").refused
    assert "is gone" in " ".join(sglang(v2, "0.5.23").notes)


def test_adaptive_mode() -> None:
    line = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /d --speculative-adaptive"
    made = sglang(line, "0.5.23")
    assert (made.steps, made.topk, made.draft_tokens, made.max_accept_length, made.varies) == (3, 1, 4, 8, True)
    assert sglang(line, "0.5.9").refused
    off = sglang(
        f"{line} --speculative-num-steps 3 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8", "0.5.23"
    )
    assert (override(off, "adaptive").effective, off.varies, off.topk) == ("off", False, 4)


def test_what_stands_beside() -> None:
    made = sglang(eagle3(3, 1, 4, "--speculative-token-map /t --quantization fp8"))
    assert override(made, "token map").kind == CHANGED
    assert override(made, "draft quantisation").effective == "fp8"
    assert override(made, "max running requests").effective == "48"
    quiet = sglang(eagle3(3, 1, 4, "--quantization fp8 --speculative-draft-model-quantization unquant "
                                   "--max-running-requests 8"))  # fmt: skip
    assert quiet.overrides == ()


# vLLM


def test_vllm_counts_drafts_and_not_the_root() -> None:
    made = vllm({"method": "eagle3", "model": "/d", "num_speculative_tokens": 3})
    assert numbers(made) == (3, 1, 3, 4)
    assert (made.drafted, made.verified, made.overrides) == (3, 4, ())
    assert made.server == "vllm@0.33.0"


@pytest.mark.parametrize("k", range(1, 8))
def test_the_conversion_between_the_engines_goes_round(k: int) -> None:
    there = vllm({"method": "eagle3", "model": "/d", "num_speculative_tokens": k}).conversion
    line = there.partition("the same there is ")[2]
    back = sglang(f"--speculative-algorithm EAGLE3 --speculative-draft-model-path /d {line}")
    assert (back.drafted, back.max_accept_length, kinds(back)) == (k, k + 1, [])
    assert back.conversion.endswith(f"num_speculative_tokens {k}")


@pytest.mark.parametrize(
    ("table", "method", "kind"),
    [
        ({"model": "yuhuili/EAGLE3-LLaMA3.1"}, "eagle3", CHANGED),
        ({"model": "/d/my-eagle-3-head"}, "eagle", WRONG),  # eagle- is looked for first
        ({"model": "/d/head"}, "draft_model", WRONG),
        ({"model": "/d/EAGLE3", "method": "eagle"}, "eagle", WRONG),
        ({"model": "/d/head", "method": "eagle3"}, "eagle3", ""),
    ],
)
def test_the_method_by_the_path(table: dict[str, Any], method: str, kind: str) -> None:
    made = vllm({"num_speculative_tokens": 3, **table})
    assert made.algorithm == method
    assert (kinds(made) or [""])[0] == kind


def test_tokens_are_required_unless_the_drafter_says_them() -> None:
    table = {"method": "eagle3", "model": "/d"}
    assert vllm(table).refused
    made = vllm(table, SPECULATORS)
    assert (made.steps, made.max_accept_length) == (5, 6)
    assert "proposal_methods" in override(made, "speculative tokens").why
    assert vllm({**table, "num_speculative_tokens": 2}, SPECULATORS).steps == 2


@pytest.mark.parametrize(
    ("k", "n", "starts"), [(1, 2, True), (2, 2, True), (3, 2, False), (4, 2, True), (None, 2, True)]
)
def test_n_predict_divides(k: int | None, n: int, starts: bool) -> None:
    table = {"method": "eagle3", "model": "/d", **({} if k is None else {"num_speculative_tokens": k})}
    made = vllm(table, DrafterFacts(is_eagle3=True, n_predict=n))
    assert made.refused != starts
    assert made.steps == ((k or n) if starts else None)


@pytest.mark.parametrize(("draft", "target", "starts"), [(1, 8, True), (8, 8, True), (2, 8, False)])
def test_draft_parallel_size(draft: int, target: int, starts: bool) -> None:
    table = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3, "draft_tensor_parallel_size": draft}
    assert vllm(table, more=f"--tensor-parallel-size {target}").refused != starts


def test_the_old_form_and_p_eagle_are_said() -> None:
    made = effective(parse_flags("--speculative-model /d/eagle3 --num-speculative-tokens 4"), "vllm", EAGLE3)
    assert made.drafted == 4 and "before --speculative-config" in " ".join(made.notes)
    parallel = vllm(
        {"method": "eagle3", "model": "/d", "num_speculative_tokens": 4}, DrafterFacts(is_eagle3=True, parallel=True)
    )
    assert (parallel.steps, parallel.drafted, parallel.max_accept_length) == (1, 4, 5)


# engines and facts


def test_flags_and_server_must_be_of_one_engine() -> None:
    for line, server, said in (
        (FOUNDING, "vllm@0.33.0", "flags of sglang"),
        ("--page-size 1", "", "do not tell the engine"),
        (FOUNDING, "trtllm", "rules were not read"),
        (FOUNDING, "tgi", "the server 'tgi'"),
    ):
        with refused(WiringError, said):
            effective(parse_flags(line), server)


def test_the_json_has_every_override() -> None:
    data = json.loads(json.dumps(effective_json(sglang(FOUNDING))))
    assert (data["max_accept_length"], data["refused"], data["overrides"][0]["what"]) == (2, False, "draft tokens")


def test_facts_of_checkpoints(tmp_path: Path) -> None:
    weights = tiny.tiny_weights()
    tiny.write_flat(tmp_path / "flat/7", weights)
    (flat,) = find_checkpoints(tmp_path / "flat")
    facts = drafter_facts(open_checkpoint(flat))
    assert (facts.is_eagle3, facts.fc_inputs, facts.parallel, facts.speculative_tokens) == (True, 3, False, None)
    tiny.write_flat(tmp_path / "both/7", weights, speculators_config=True)
    path = tmp_path / "both/7/config_speculators.json"
    table = json.loads(path.read_text())
    table["speculators_config"]["proposal_methods"] = [{"proposal_type": "greedy", "speculative_tokens": 4}]
    table["speculators_config"]["verifier"]["architectures"] = ["LlamaForCausalLM"]
    path.write_text(json.dumps(table))
    (both,) = find_checkpoints(tmp_path / "both")
    facts = drafter_facts(open_checkpoint(both))
    assert (facts.speculative_tokens, facts.target_architecture) == (4, "LlamaForCausalLM")
    for broken in ([{"speculative_tokens": "4"}], [], {"speculative_tokens": 4}, [{"speculative_tokens": -1}], [7]):
        table["speculators_config"]["proposal_methods"] = broken
        path.write_text(json.dumps(table))
        assert drafter_facts(open_checkpoint(both)).speculative_tokens is None

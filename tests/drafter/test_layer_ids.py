"""Section 5 of checkpoints.md, row by row: ids -> depths for each producer and server, and depths -> ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import pytest

from drafter.checkpoint.dialects import read_config
from drafter.errors import CheckpointError, WiringError
from drafter.serving.families import FAMILIES, Family, family_of
from drafter.serving.layer_ids import NESTED, TOP, WIDTH, captured, ids_to_write, sglang_default
from drafter.serving.producers import PRODUCERS, defaults_like
from drafter.serving.server import Server, parse_version
from tests import tiny
from tests.drafter.helpers import refused

KIMI, LLAMA, QWEN, GPT, M3 = (
    family_of(name) for name in ("kimi_k25", "llama", "qwen3", "gpt_oss", "minimax_m3_vl")
)  # fmt: skip
N = 61  # the seed's target
SEED = [2, 30, 58]


def nested(ids: Sequence[int], **more: Any) -> dict[str, Any]:
    return {"eagle_config": {TOP: list(ids)}, **more}


def depths(table: dict[str, Any], server: str, family: Family = KIMI, n: int | None = N) -> Any:
    return captured(table, Server.parse(server), family, n).depths


def failure(table: dict[str, Any], server: str, family: Family = KIMI, n: int | None = N) -> str:
    return captured(table, Server.parse(server), family, n).failure


def notes(table: dict[str, Any], server: str, family: Family = KIMI, n: int | None = N) -> str:
    return "; ".join(captured(table, Server.parse(server), family, n).notes)


# --- servers and their versions


def test_versions_in_order() -> None:
    ordered = ["0.4.6.post5", "0.5.9", "0.5.12.dev1", "0.5.12rc1", "0.5.12", "0.5.12.post1", "0.5.13", "0.5.23", "1.0"]
    assert sorted(set(ordered), key=parse_version) == ordered
    assert parse_version("v0.5") == parse_version("0.5.0") == parse_version("0.5.0+cu126")
    assert parse_version("main") > parse_version("9999.1")


def test_a_server_is_named_with_its_version() -> None:
    server = Server.parse(" SGLang@0.5.12.post1 ")
    assert (server.name, str(server), server.assumed) == ("sglang", "sglang@0.5.12.post1", False)
    assert not server.before("0.5.12.post1") and server.before("0.5.13") and not server.unread
    assert str(Server.parse("vllm")) == "vllm@0.33.0"
    assert "no version given" in Server.parse("vllm").unread
    assert "older" in Server.parse("sglang@0.4.1").unread and "newer" in Server.parse("vllm@0.40").unread
    assert str(Server.parse("trtllm")) == "trtllm@main"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        *(("server", text) for text in ("", "tgi@1.0", "sglang@", "@0.5")),
        *(("version", text) for text in ("sglang@new", "vllm@0.33@1", "sglang@1.2.3.4.5", "vllm@0.33\n")),
    ],
)
def test_other_servers_are_refused(what: str, text: str) -> None:
    with refused(WiringError, f"the {what} "):
        Server.parse(text.replace("\n", "\x1b"))


# --- families


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, names in FAMILIES.items() for name in names])
def test_families_of_the_table(rule: str, name: str) -> None:
    assert family_of(name) == Family(name, rule)


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("LlamaForCausalLM", "llama"),
        ("DeepseekV3ForCausalLM", "deepseek_v3"),
        ("KimiK25ForConditionalGeneration", "kimi_k25"),
        ("GptOssForCausalLM", "gpt_oss"),
        ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl"),
        ("Glm4MoeLiteForCausalLM", "glm4_moe_lite"),
        ("MiniMaxM2ForCausalLM", "minimax_m2"),
    ],
)
def test_families_by_architecture(architecture: str, name: str) -> None:
    assert family_of("", [architecture]).name == name
    assert family_of("a_wrapper", [architecture]).name == name


def test_an_unknown_family_is_said_to_be_assumed() -> None:
    assert family_of("new_model") == Family("new_model", "ordinary", assumed=True)
    assert depths(nested(SEED), "sglang@0.5.23", family_of("new_model")) == (3, 31, 59)
    assert "'new_model' is not in the tables: the ordinary rule is assumed" in notes(
        nested(SEED), "sglang@0.5.23", family_of("new_model")
    )
    assert "family is unknown" in notes(nested(SEED), "vllm@0.33.0", family_of())


# --- 5.1 producers


@pytest.mark.parametrize(
    ("producer", "of_2_30_58", "default"),
    [
        ("SafeAILab", (2, 30, 58), (2, 30, 58)),
        ("speculators <=0.4", (3, 31, 59), (3, 31, 59)),
        ("speculators >=0.5", (2, 30, 58), (2, 30, 58)),
        ("SpecForge", (3, 31, 59), (2, 30, 58)),
        ("ModelOpt", (3, 31, 59), (2, 30, 58)),
        ("AngelSlim", (3, 31, 59), (2, 30, 58)),
        ("TorchSpec", (3, 31, 59), (2, 30, 58)),
        ("TorchSpec for vLLM", (2, 30, 58), (2, 30, 58)),
        ("NeMo", (3, 31, 59), (2, 30, 58)),
    ],
)
def test_producers(producer: str, of_2_30_58: tuple[int, ...], default: tuple[int, ...]) -> None:
    assert PRODUCERS[producer].depths(SEED) == of_2_30_58
    assert PRODUCERS[producer].default_depths(N) == default
    assert (producer in defaults_like((2, 30, 58), N)) == (default == (2, 30, 58))


def test_all_defaults_agree_but_those_of_old_speculators() -> None:
    assert defaults_like((3, 31, 59), N) == ["speculators <=0.4"]
    assert set(PRODUCERS) - set(defaults_like((2, 30, 58), N)) == {"speculators <=0.4"}
    assert defaults_like((0, 3, 31), N) == []


# --- the seed's example


@pytest.mark.parametrize("version", ["0.5.10", "0.5.11", "0.5.12", "0.5.12.post1"])
def test_seed_on_sglang_to_0_5_12(version: str) -> None:
    assert depths(nested(SEED), f"sglang@{version}") == (3, 31, 59)


@pytest.mark.parametrize("version", ["0.5.13", "0.5.14", "0.5.17", "0.5.23"])
def test_seed_on_sglang_from_0_5_13(version: str) -> None:
    assert depths(nested(SEED), f"sglang@{version}") == (2, 30, 58)
    assert depths(nested([1, 29, 57]), f"sglang@{version}") == (2, 30, 58)
    assert depths(nested([29, 1, 57]), f"sglang@{version}") == (1, 29, 57)


def test_seed_on_vllm() -> None:
    found = captured({TOP: SEED}, Server.parse("vllm@0.33.0"), KIMI, N)
    assert (found.depths, found.ids, found.source) == ((2, 30, 58), (2, 30, 58), TOP)
    found = captured(nested([9, 10, 11]), Server.parse("vllm@0.33.0"), KIMI, N)
    assert (found.depths, found.ids, found.source) == ((2, 30, 58), None, "default")
    assert "(V2) does not read eagle_config" in "; ".join(found.notes)


def test_right_lists_for_the_seed() -> None:
    def lists(server: str) -> tuple[dict[str, Any], str]:
        found = ids_to_write([0, 3, 31], Server.parse(server), KIMI, N)
        return dict(found.keys or {}), "; ".join(found.notes)

    keys, said = lists("sglang@0.5.12.post1")
    assert (keys, "needs a patch" in said) == ({NESTED: [-1, 2, 30]}, True)
    keys, said = lists("sglang@0.5.13")
    assert (keys, "needs a patch" in said) == ({NESTED: [0, 3, 31]}, True)
    keys, said = lists("sglang@0.5.14")
    assert (keys, said) == ({NESTED: [0, 3, 31]}, "")
    keys, said = lists("vllm@0.33.0")
    assert (keys, "needs a patch" in said) == ({TOP: [0, 3, 31], WIDTH: 3}, True)
    found = ids_to_write([0, 3, 31], Server.parse("trtllm"), KIMI, N)
    assert found.keys is None and "no embedding" in found.reason


# --- 5.2 SGLang


@pytest.mark.parametrize("name", FAMILIES["ordinary"])
@pytest.mark.parametrize("version", ["0.5.11", "0.5.13", "0.5.23"])
def test_ordinary_families_add_one(name: str, version: str) -> None:
    assert depths(nested([1, 15, 28]), f"sglang@{version}", family_of(name), 32) == (2, 16, 29)
    assert depths(nested([31, 4, 9]), f"sglang@{version}", family_of(name), 32) == (5, 10, 32)


@pytest.mark.parametrize(
    ("version", "ids", "found"),
    [
        ("0.5.14", [24, 30, 36], (25, 31)),
        ("0.5.17", [24, 30, 36], (24, 30, 36)),
        ("0.5.17", [23, 29, 35], (24, 30, 36)),
        ("0.5.14", [23, 29, 35], (24, 30, 36)),
    ],
)
def test_gpt_oss(version: str, ids: list[int], found: tuple[int, ...]) -> None:
    assert depths(nested(ids), f"sglang@{version}", GPT, 36) == found
    lost = failure(nested(ids), f"sglang@{version}", GPT, 36)
    assert lost == ("captured 2 of 3 states: id 36 leads to depth 37" if len(found) == 2 else "")


def test_gpt_oss_between_the_versions_that_were_read() -> None:
    assert "changed between 0.5.14 and 0.5.17" in notes(nested(SEED), "sglang@0.5.15", GPT)
    assert not notes(nested(SEED), "sglang@0.5.14", GPT) and not notes(nested(SEED), "sglang@0.5.17", GPT)


def test_sglang_defaults_and_the_one_that_adds_one_to_them() -> None:
    for family in (KIMI, LLAMA, GPT):
        assert depths({}, "sglang@0.5.23", family) == (2, 30, 58)
    assert depths({}, "sglang@0.5.23", M3) == (3, 31, 59)
    assert depths(nested([1, 29, 57]), "sglang@0.5.23", M3) == (2, 30, 58)
    assert depths({}, "sglang@0.5.23", LLAMA, None) is None


def test_sglang_reads_no_top_level_list() -> None:
    found = captured({TOP: [0, 3, 31]}, Server.parse("sglang@0.5.23"), KIMI, N)
    assert (found.depths, found.source) == ((2, 30, 58), "default")
    assert "the top-level list of layer ids is not read for the capture" in found.notes


@pytest.mark.parametrize(
    ("family", "version", "raises"),
    [
        (LLAMA, "0.5.14", True),
        (LLAMA, "0.5.23", False),
        (LLAMA, "0.5.17", None),
        (GPT, "0.5.14", True),
        (KIMI, "0.5.12", True),
        (QWEN, "0.5.9", False),
        (family_of("qwen2"), "0.5.2", False),
        (family_of("gemma3"), "0.5.9", None),
        (family_of("gemma3"), "0.5.23", False),
        (family_of("unheard_of"), "0.5.9", None),
        (family_of("unheard_of"), "0.5.23", False),
    ],
)
def test_embedding_on_sglang(family: Family, version: str, raises: bool | None) -> None:
    found = captured(nested([-1, 2, 15]), Server.parse(f"sglang@{version}"), family, 30)
    assert found.depths == (0, 3, 16)
    assert ("TypeError" in found.failure) == bool(raises)
    assert ("was not read" in "; ".join(found.notes)) == (raises is None)


@pytest.mark.parametrize(("version", "raises"), [("0.5.13", True), ("0.5.14", False), ("0.5.23", False)])
def test_embedding_of_deepseek_from_0_5_13(version: str, raises: bool) -> None:
    assert depths(nested([0, 3, 31]), f"sglang@{version}") == (0, 3, 31)
    assert ("TypeError" in failure(nested([0, 3, 31]), f"sglang@{version}")) == raises
    assert depths(nested([-1, 2, 30]), f"sglang@{version}") == (2, 30)
    assert "captured 2 of 3 states: id -1 leads to depth -1" in failure(nested([-1, 2, 30]), f"sglang@{version}")


@pytest.mark.parametrize(("version", "graphs"), [("0.5.9", True), ("0.5.10", True), ("0.5.11", False)])
def test_graphs_capture_the_default_to_0_5_10(version: str, graphs: bool) -> None:
    said = notes(nested([3, 15, 27]), f"sglang@{version}", LLAMA, 30)
    assert ("the default depths 2, 15, 27" in said and "--disable-cuda-graph" in said) == graphs
    assert "CUDA" not in notes(nested([1, 14, 26]), f"sglang@{version}", LLAMA, 30)  # the default itself


def test_the_default_of_a_small_target_is_the_same_everywhere() -> None:
    """Six layers: 2, 3 and 3 are two depths, in the note, as what is captured and as what graphs capture."""
    assert sglang_default(LLAMA, 6) == (2, 3) == depths({}, "sglang@0.5.9", LLAMA, 6)
    assert "the default depths 2, 3 up to 0.5.10" in notes(nested([1, 2, 5]), "sglang@0.5.9", LLAMA, 6)
    assert "CUDA" not in notes(nested([1, 2]), "sglang@0.5.9", LLAMA, 6)  # the default itself


def test_what_an_sglang_does_not_serve_at_all() -> None:
    assert "takes three states before 0.5.12, not 4" in failure(nested([1, 2, 3, 4]), "sglang@0.5.11", LLAMA, 30)
    assert failure(nested([1, 2, 3, 4]), "sglang@0.5.12", LLAMA, 30) == ""
    assert "from 0.5.10 on" in failure(nested(SEED), "sglang@0.5.9")
    assert failure(nested(SEED), "sglang@0.5.10") == ""
    assert failure(nested(SEED), "sglang@0.5.9", family_of("kimi_k2")) == ""


def test_lists_with_faults() -> None:
    assert depths(nested([1, 1, 1]), "sglang@0.5.23", LLAMA, 5) == (2,)
    assert "captured 1 of 3 states: depth 2 is named twice" in failure(nested([1, 1, 1]), "sglang@0.5.23", LLAMA, 5)
    assert "empty list" in failure(nested([]), "sglang@0.5.23", LLAMA)  # not the same as no list
    assert "1 depths" not in failure({}, "sglang@0.5.23", LLAMA)
    assert "ids past its end are not noticed" in notes(nested([1, 99, 5]), "sglang@0.5.23", LLAMA, None)
    for bad in ("1,2,3", [1, "2"], [True, 1, 2], [1.5], list(range(99)), [1 << 40]):
        with refused(CheckpointError, NESTED, "a list of layer ids"):
            depths({"eagle_config": {TOP: bad}}, "sglang@0.5.23")


# --- 5.3 vLLM


@pytest.mark.parametrize(
    ("table", "found", "source"),
    [
        ({TOP: [1, 5, 9], "dflash_config": {"target_layer_ids": [2]}}, (1, 5, 9), TOP),
        ({"dflash_config": {"target_layer_ids": [1, 5, 9]}}, (2, 6, 10), "dflash_config.target_layer_ids"),
        ({"target_layer_ids": [1, 5, 9]}, (2, 6, 10), "target_layer_ids"),
        ({"eagle_config": {"layer_ids": [1, 5, 9]}}, (1, 5, 9), "eagle_config.layer_ids"),
        (nested([1, 5, 9]), (2, 15, 27), "default"),
        (nested([1, 5, 9], parallel_drafting=True), (1, 5, 9), NESTED),
        ({TOP: [9, 5, 1, 5], WIDTH: 3}, (1, 5, 9), TOP),
        ({}, (2, 15, 27), "default"),
    ],
)
def test_vllm_sources(table: dict[str, Any], found: tuple[int, ...], source: str) -> None:
    capture = captured(table, Server.parse("vllm@0.33.0"), LLAMA, 30)
    assert (capture.depths, capture.source) == (found, source)


def test_a_specforge_list_at_the_top_is_one_layer_early_on_vllm() -> None:
    ids = [1, 29, 57]
    assert depths({TOP: ids}, "vllm@0.33.0", LLAMA) == (1, 29, 57)
    assert PRODUCERS["SpecForge"].depths(ids) == (2, 30, 58)


def test_vllm_counts_states_by_other_keys_than_it_captures() -> None:
    four = {TOP: [1, 2, 3, 4]}
    assert failure(four, "vllm@0.33.0", LLAMA) == "fc is built for 3 states (default), 4 are captured"
    assert failure({**four, WIDTH: 4}, "vllm@0.33.0", LLAMA) == ""
    assert failure({**four, **nested([1, 2, 3, 4])}, "vllm@0.33.0", LLAMA) == ""
    assert failure({**four, "transformer_layer_config": {}}, "vllm@0.33.0", LLAMA) == ""


def test_embedding_and_last_layer_on_vllm() -> None:
    assert "TypeError" in failure({TOP: [0, 3, 31]}, "vllm@0.33.0")
    for name in ("llama", "qwen2", "qwen3", "gpt_oss", "minimax_m2", "gemma4"):
        capture = captured({TOP: [0, 3, 31]}, Server.parse("vllm@0.33.0"), family_of(name), N)
        assert (capture.failure, capture.notes) == ("", ())
    assert "was not read" in notes({TOP: [0, 3, 31]}, "vllm@0.33.0", family_of("glm4_moe"))
    assert "captured 2 of 3 states: id -1 leads to depth -1" in failure({TOP: [-1, 3, 31]}, "vllm@0.33.0", LLAMA)
    assert depths({TOP: [3, 31, N]}, "vllm@0.33.0", LLAMA) == (3, 31, N)
    assert "#46973" in notes({TOP: [3, 31, N]}, "vllm@0.33.0") and not notes({TOP: [3, 31, N]}, "vllm@0.33.0", LLAMA)


# --- TensorRT-LLM


def test_trtllm() -> None:
    assert depths({}, "trtllm") == (2, 30, 58)
    assert depths(nested([57, 1, 29]), "trtllm") == (2, 30, 58)
    assert depths(nested([1, 29, -1]), "trtllm") == (2, 30)
    assert "after the final norm, moved last" in failure(nested([1, 29, -1]), "trtllm")


# --- 5.4 back to ids

ALL = [
    *(("sglang", family, v) for family in (LLAMA, KIMI, GPT, M3) for v in ("0.5.12", "0.5.13", "0.5.14", "0.5.23")),
    *(("vllm", family, "0.33.0") for family in (LLAMA, KIMI)),
    ("trtllm", LLAMA, "main"),
]


@pytest.mark.parametrize(("name", "family", "version"), ALL)
def test_what_is_written_captures_what_was_wanted(name: str, family: Family, version: str) -> None:
    server, n = Server.parse(f"{name}@{version}"), 6
    for count in (1, 2, 3, 4):
        for wanted in combinations(range(n + 1), count):
            found = ids_to_write(wanted, server, family, n)
            if found.keys is None:
                assert found.reason
                assert name == "trtllm" or (family is KIMI and wanted == (1,)), (wanted, found.reason)
                continue
            table: dict[str, Any] = {"eagle_config": {}}
            for key, value in found.keys.items():
                (table if "." not in key else table["eagle_config"])[key.rpartition(".")[2]] = value
            capture = captured(table, server, family, n)
            assert capture.depths == wanted
            assert capture.failure in ("", *found.notes)


@pytest.mark.parametrize(
    ("server", "family", "n", "wanted", "ids"),
    [
        ("sglang@0.5.23", LLAMA, 32, (2, 16, 29), [1, 15, 28]),
        ("sglang@0.5.12.post1", KIMI, N, (2, 30, 58), [1, 29, 57]),
        ("sglang@0.5.13", KIMI, N, (3, 31, 59), [3, 31, 59]),
        ("sglang@0.5.13", KIMI, N, (1, 31, 59), [31, 1, 59]),
        ("sglang@0.5.17", GPT, 36, (24, 30, 36), [24, 30, 36]),
        ("sglang@0.5.17", GPT, 36, (24, 30, 35), [23, 29, 34]),
        ("sglang@0.5.14", GPT, 36, (24, 30, 36), [23, 29, 35]),
        ("trtllm", LLAMA, 32, (2, 16, 29), [1, 15, 28]),
    ],
)
def test_rows_of_the_translation(
    server: str, family: Family, n: int, wanted: tuple[int, ...], ids: list[int]
) -> None:  # fmt: skip
    assert ids_to_write(wanted, Server.parse(server), family, n).keys == {NESTED: ids}


def test_vllm_is_written_in_both_places() -> None:
    found = ids_to_write((0, 3, 16, 28), Server.parse("vllm@0.33.0"), LLAMA, 30)
    assert found.keys == {TOP: [0, 3, 16, 28], WIDTH: 4}
    assert found.copies == {NESTED: [0, 3, 16, 28]}


@pytest.mark.parametrize(
    ("server", "family", "wanted", "reason"),
    [
        ("sglang@0.5.23", LLAMA, (31, 0, 3), "no server can permute"),
        ("vllm@0.33.0", LLAMA, (3, 0, 31), "no server can permute"),
        ("vllm@0.33.0", LLAMA, (3, 3, 31), "captured once"),
        ("sglang@0.5.23", LLAMA, (2, 30, 62), "61 layers"),
        ("sglang@0.5.11", LLAMA, (2, 30), "three states"),
        ("sglang@0.5.9", KIMI, (2, 30, 58), "from 0.5.10 on"),
        ("sglang@0.5.13", KIMI, (1,), "no list makes sglang@0.5.13 capture depths 1"),
        ("trtllm", LLAMA, (2, 30, 61), "only after its norm"),
    ],
)
def test_where_no_list_can_do_it(server: str, family: Family, wanted: tuple[int, ...], reason: str) -> None:
    found = ids_to_write(wanted, Server.parse(server), family, N)
    assert found.keys is None
    assert reason in found.reason


# --- from an opened config


@pytest.mark.parametrize(
    ("make", "sglang", "vllm"),
    [(tiny.flat_config, (2, 4, 6), (2, 4, 5)), (tiny.nested_config, (2, 4, 5), (0, 2, 4))],
)
def test_the_normal_form_gives_the_same_as_the_table(
    make: Callable[..., dict[str, Any]], sglang: tuple[int, ...], vllm: tuple[int, ...]
) -> None:
    table = make(tiny.tiny_weights())
    for server, found in (("sglang@0.5.23", sglang), ("vllm@0.33.0", vllm)):
        for config in (table, read_config(table, "config.json")):
            assert captured(config, Server.parse(server), LLAMA, 8).depths == found

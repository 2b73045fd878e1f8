"""Logs of every format that users paste: the accept length, bonus token counted, and what each rate means."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from drafter.errors import FileError, PathError
from drafter.serving.accept_rate import rate_meaning
from drafter.serving.log_file import log_lines, stream_lines
from drafter.serving.log_tally import MAX_POINTS
from drafter.serving.server import Server
from drafter.serving.server_log import MAX_JSON, ServerLog, check_against, log_json, read_log
from tests.drafter.helpers import refused

OLDEST = (
    "[2025-06-20 04:35:25 TP0] Decode batch. #running-req: 4, #token: 3121, token usage: 0.00, accept len: 2.74, "
    "cuda graph: True, gen throughput (token/s): 396.76, #queue-req: 0"
)
MIDDLE = (
    "[2025-12-01 10:00:00] Decode batch, #running-req: 1, #full token: 1000, full token usage: 0.10, mamba num: 1, "
    "mamba usage: 0.04, accept len: 1.90, accept rate: 0.95, cuda graph: True, gen throughput (token/s): 46.70, "
    "#queue-req: 0, "
)
NEWEST = (
    "[2026-09-27T00:15:25.500Z TP0] Decode batch [40], #running-req: 10, #full token: 685000, accept len: 2.77, accept "
    "rate: 0.59, cap len: 3.10, block accept len: 2.90, cuda graph: True, gen throughput (token/s): 8.44, "
    "#queue-req: 0, est. decode TFLOPS/s (per GPU): 1.00"
)
VLLM_LOAD = (
    "(APIServer pid=1) INFO 10-26 12:36:16 [loggers.py:127] Engine 000: Avg prompt throughput: 2.3 tokens/s, Avg "
    "generation throughput: 41.2 tokens/s, Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%"
)
VLLM = (
    "(APIServer pid=1) INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.01, "
    "Accepted throughput: 20.60 tokens/s, Drafted throughput: 60.90 tokens/s, Accepted: 206 tokens, "
    "Drafted: 609 tokens, Per-position acceptance rate: 0.601, 0.286, 0.128, Avg Draft acceptance rate: 33.8%"
)
VLLM_JUNE = (
    "INFO 06-06 14:20:34 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 38.8%, Mean acceptance length: "
    "2.16, Accepted: 150 tokens, Drafted: 387 tokens, Per-position acceptance rate: 0.543, 0.357, 0.264"
)
VLLM_FIRST = (
    "INFO 04-02 18:03:51 [metrics.py:53] SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 60 tokens, "
    "Drafted: 120 tokens"
)
VLLM_IDLE = VLLM_FIRST.replace("50.0%", "nan%").replace("60 tokens", "0 tokens").replace("120", "0")
VLLM_V0 = (
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 0.598, "
    "Number of speculative tokens: 3, Number of accepted tokens: 8547, Number of draft tokens: 13311, "
    "Number of emitted tokens: 10616."
)


def read(*lines: str, server: str = "", draft_tokens: int | None = None) -> ServerLog:
    return read_log(lines, server=Server.parse(server) if server else None, draft_tokens=draft_tokens)


def decode(length: float, rate: float | None = None, speed: float = 50.0) -> str:
    rates = "" if rate is None else f", accept rate: {rate:.2f}"
    return (
        f"[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 5, token usage: 0.00, accept len: {length:.2f}"
        f"{rates}, cuda graph: True, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
    )


# SGLang


@pytest.mark.parametrize(
    ("line", "length", "rate", "speed", "running", "time"),
    [
        (OLDEST, 2.74, None, 396.76, 4, "2025-06-20 04:35:25"),
        (MIDDLE, 1.90, 0.95, 46.70, 1, "2025-12-01 10:00:00"),
        (NEWEST, 2.77, 0.59, 8.44, 10, "2026-09-27T00:15:25"),
    ],
)
def test_decode_lines_of_every_age(
    line: str, length: float, rate: float | None, speed: float, running: int, time: str
) -> None:
    log = read("[2025] something else", f"pod/x \x1b[32m{line}\x1b[0m", "INFO: 200 OK")
    (point,) = log.points
    assert (log.engine, log.lines, point.line, point.time) == ("sglang", 3, 2, time)
    assert (log.mean, point.rate, point.throughput, point.running) == (length, rate, speed, running)
    assert "the bonus token counts" in log.definitions["length"]


def test_statistics_are_those_of_the_lines() -> None:
    rng = random.Random(1)
    lengths = [round(rng.uniform(1, 4), 2) for _ in range(101)]
    log = read(*(decode(length, speed=length * 20) for length in lengths))
    assert log.length.count == 101
    assert log.length.mean == pytest.approx(statistics.mean(lengths))
    assert log.length.median == pytest.approx(statistics.median(lengths))
    assert (log.length.low, log.max_length_seen) == (min(lengths), max(lengths))
    even = read(*(decode(length) for length in lengths[:100]))
    assert even.length.median == pytest.approx(statistics.median(lengths[:100]))
    assert log.first == pytest.approx(statistics.mean(lengths[:25]))
    assert log.last == pytest.approx(statistics.mean(lengths[-25:]))
    assert log.speed == pytest.approx(statistics.median(length * 20 for length in lengths), rel=1e-3)


def test_a_length_that_falls_over_time_shows_in_the_quarters() -> None:
    log = read(*(decode(3.5 - 0.02 * i) for i in range(100)))
    assert log.first is not None and log.last is not None
    assert log.first - log.last == pytest.approx(0.02 * 75)
    few = read(*(decode(2.0) for _ in range(19)))
    assert (few.first, few.last) == (None, None)


def test_speed_of_one_request_needs_lines_of_one_request() -> None:
    assert read(MIDDLE).speed == 46.70
    assert read(MIDDLE, OLDEST).speed is None


def made_up(tokens: int, accepted: list[float], bonus: bool) -> list[str]:
    """Lines as a server of T = `tokens` prints them for these mean numbers of accepted drafts."""
    return [decode(1 + a, (1 + a) / tokens if bonus else a / (tokens - 1)) for a in accepted]


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("tokens", [2, 4, 6])
@pytest.mark.parametrize("known", ["version", "tokens", "nothing"])
def test_what_an_accept_rate_means(bonus: bool, tokens: int, known: str) -> None:
    rng = random.Random(tokens)
    accepted = [rng.uniform(0.2, 0.9) * (tokens - 1) for _ in range(60)]
    server = ("sglang@0.5.9" if bonus else "sglang@0.5.14") if known == "version" else ""
    log = read(*made_up(tokens, accepted, bonus), server=server, draft_tokens=tokens if known == "tokens" else None)
    assert log.definitions["rate"].startswith("accept len / T, the bonus" if bonus else "accepted drafts / (T - 1)")
    assert log.drafts_accepted == pytest.approx(statistics.mean(accepted) / (tokens - 1), abs=0.01)


def test_two_of_two_is_one_in_both_definitions_and_so_is_not_told() -> None:
    lines = [decode(2.0, 1.0)] * 5
    log = read(*lines)
    assert log.drafts_accepted is None
    assert "--server" in log.definitions["rate"]
    assert read(*lines, server="sglang@0.5.9").drafts_accepted == pytest.approx(1.0)
    assert read(MIDDLE, server="sglang@0.5.10").definitions["rate"].startswith("accept len / T")
    assert read(NEWEST, server="sglang@0.5.11").definitions["rate"].startswith("accepted drafts / (T - 1)")


def test_numbers_that_contradict_the_version_win_and_it_is_said() -> None:
    lines = made_up(4, [0.3, 1.1, 2.2, 2.9], bonus=True)
    log = read(*lines, server="sglang@0.5.14")
    assert log.definitions["rate"].startswith("accept len / T, the bonus")
    assert "do not fit sglang@0.5.14" in " ".join(log.warnings)


def test_rates_that_fit_neither_definition_are_left_alone() -> None:
    meaning = rate_meaning([(1.5, 0.9), (3.5, 0.1)], 2.5, 0.5, None, None)
    assert (meaning.bonus, meaning.accepted) == (None, None)


def test_without_a_rate_the_number_of_tokens_tells_the_share() -> None:
    assert read(OLDEST, draft_tokens=4, server="sglang@0.4.6.post5").drafts_accepted == pytest.approx(1.74 / 3)
    assert read(OLDEST).drafts_accepted is None


def test_what_a_start_up_line_tells() -> None:
    log = read(
        "sglang version: 0.5.9",
        "[2026-01-01 00:00:00] WARNING speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
        "speculative_eagle_topk == 1",
        "[2026-01-01 00:00:00] server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE3', "
        "speculative_num_steps=1, speculative_eagle_topk=1, speculative_num_draft_tokens=2, page_size=1)",
        MIDDLE,
    )
    assert (log.version, log.clamped) == ("0.5.9", True)
    assert log.asked is not None
    assert (log.asked.steps, log.asked.topk, log.asked.draft_tokens) == (1, 1, 2)
    assert log.drafts_accepted == pytest.approx(0.90)
    assert "is of sglang@0.5.9, not of sglang@0.5.14" in " ".join(
        read("sglang version: 0.5.9", MIDDLE, server="sglang@0.5.14").warnings
    )


# vLLM


def test_vllm_lines_are_pooled_over_rounds() -> None:
    other = VLLM.replace("2.01", "4.00").replace("206", "30").replace("609", "30").replace(
        "0.601, 0.286, 0.128", "1.000, 1.000, 1.000"
    )  # fmt: skip
    log = read(VLLM_LOAD, VLLM, "noise", VLLM_LOAD, other)
    rounds = 203 + 10
    assert log.length.mean == pytest.approx((2.01 + 4.0) / 2)
    assert log.pooled == log.mean == pytest.approx(1 + (1.01 * 203 + 3 * 10) / rounds)
    assert log.per_position == pytest.approx([(p * 203 + 10) / rounds for p in (0.601, 0.286, 0.128)])
    assert sum(log.per_position) == pytest.approx(log.mean - 1, abs=0.006)
    assert log.drafts_accepted == pytest.approx((1.01 * 203 + 30) / 639)
    assert log.throughput is not None and log.throughput.mean == 41.2
    assert log.running is not None and log.running.high == 2
    assert log.points[0].time == "10-26 12:36:16"


def test_vllm_of_june_with_another_order_of_fields() -> None:
    log = read(VLLM_JUNE)
    assert (log.mean, log.length.count) == (pytest.approx(2.16), 1)
    assert log.per_position == pytest.approx((0.543, 0.357, 0.264))
    assert log.drafts_accepted == pytest.approx(150 / 387, abs=0.003)


def test_vllms_first_format_needs_the_number_of_drafts() -> None:
    with refused(FileError, "1 about drafting without one", "--flags"):
        read(VLLM_FIRST)
    log = read(VLLM_IDLE, VLLM_FIRST, server="vllm", draft_tokens=3)
    assert log.mean == pytest.approx(1 + 60 / 40)
    config = (
        "config: speculative_config=SpeculativeConfig(method='eagle3', model='/d', num_spec_tokens=3), tokenizer=..."
    )
    log = read("INFO vLLM API server version 0.8.3", config, VLLM_FIRST)
    assert (log.mean, log.version) == (pytest.approx(2.5), "0.8.3")
    assert log.asked is not None and log.asked.speculative_tokens == 3


def test_vllm_before_v1_counts_emitted_tokens_a_round() -> None:
    log = read(VLLM_V0)
    assert log.mean == pytest.approx(10616 / (13311 / 3))
    nothing = VLLM_V0.replace("8547", "0").replace("13311", "483").replace("10616", "161")
    assert read(nothing).mean == pytest.approx(1.0)
    assert read(VLLM_V0, nothing).pooled == pytest.approx(1.0), "counts since the start: the last line holds all"


def test_an_idle_vllm_says_nothing() -> None:
    with refused(FileError, "no accept length"):
        read(VLLM_IDLE, VLLM_IDLE.replace("SpecDecoding", "SpecDecoding"))


# metrics pages and JSON


def test_a_page_of_vllm_adds_engines_and_takes_the_last_scrape() -> None:
    page = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 1.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 300.0
vllm:spec_decode_num_drafts_created{engine="1",model_name="m"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="m"} 900.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 400.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 90.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 70.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 40.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 210.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 130.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="2"} 60.0
vllm:num_requests_running{engine="0"} NaN"""
    log = read(*page.splitlines())
    assert (log.engine, log.mean, log.drafts_accepted) == ("vllm", 1 + 600 / 400, 600 / 1200)
    assert log.per_position == (0.75, 0.5, 0.25)
    assert "since the start" in log.definitions["length"]


def test_a_page_of_sglang() -> None:
    log = read(
        'sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.5',
        'sglang:spec_accept_rate{model_name="m",tp_rank="0"} 0.5',
        'sglang:gen_throughput{model_name="m"} 120.5',
        'sglang:num_running_reqs{model_name="m"} 1.0',
        server="sglang@0.5.20",
        draft_tokens=4,
    )
    assert (log.mean, log.drafts_accepted, log.speed) == (2.5, 0.5, 120.5)
    assert "of the moment" in log.definitions["length"]


@pytest.mark.parametrize("indent", [None, 2])
def test_server_info(indent: int | None) -> None:
    info = {
        "version": "0.5.9",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "internal_states": [{"last_gen_throughput": 88.0, "avg_spec_accept_length": 2.31}],
    }
    log = read(*("\n" + json.dumps(info, indent=indent)).split("\n"))
    assert (log.engine, log.version, log.mean, log.source) == ("sglang", "0.5.9", 2.31, "average of the server")
    assert log.asked is not None and log.asked.draft_tokens == 4
    assert log.drafts_accepted == pytest.approx(1.31 / 3)


def requests() -> list[dict[str, object]]:
    old = {"completion_tokens": 100, "spec_verify_ct": 40}
    middle = {"completion_tokens": 30, "spec_verify_ct": 10, "spec_accept_length": 3.0, "spec_accept_rate": 0.66,
              "spec_accept_token_num": 20, "spec_draft_token_num": 30}  # fmt: skip
    new = {"completion_tokens": 50, "spec_verify_ct": 50, "spec_accept_length": 1.0, "spec_accept_rate": 0.0,
           "spec_num_correct_drafts": 0, "spec_num_proposed_drafts": 150}  # fmt: skip
    return [{"text": "x", "meta_info": one} for one in (old, middle, new)]


def test_requests_are_pooled_over_their_rounds() -> None:
    for lines in ([json.dumps(requests())], [json.dumps(one) for one in requests()],
                  ["INFO start", *(f"data: {json.dumps(one)}" for one in requests())]):  # fmt: skip
        log = read(*lines)
        assert (log.source, log.length.count) == ("request", 3)
        assert log.length.mean == pytest.approx((2.5 + 3.0 + 1.0) / 3)
        assert log.mean == pytest.approx(180 / 100)


def test_a_request_with_a_long_text_before_its_numbers() -> None:
    line = json.dumps({"text": "x" * 100_000, **requests()[0]})
    assert read("INFO start", line).mean == 2.5
    assert read("z" * 100_000 + MIDDLE, MIDDLE).length.count == 1, "of a text line the beginning is looked at"


def test_json_that_is_nothing_or_hostile() -> None:
    deep = "[" * 100_000
    none = ('{"spec_accept_length": "2.0"}', '{"avg_spec_accept_length": true}', '{"spec_accept_length": -1}')
    for text in ("{}", "[]", deep, *none, '{"spec_verify_ct": 0, "completion_tokens": 5}', '{"a": 1e999}'):
        with refused(FileError, "no accept length"):
            read(text)
    nested = json.dumps({"avg_spec_accept_length": 2.0})
    for _ in range(100):
        nested = f"[{nested}]"
    with refused(FileError, "no accept length"):
        read(nested)


# files


def test_nothing_found_is_one_clear_line() -> None:
    with refused(FileError, "no accept length in 2 lines", "SpecDecoding"):
        read("hello", "accept len: x, accept rate: y")
    with refused(FileError, "in 0 lines"):
        read()


def test_of_two_kinds_the_more_frequent_counts_and_the_other_is_named() -> None:
    log = read(VLLM, OLDEST, OLDEST, "avg_spec_accept_length=2.5")
    assert (log.engine, log.source, log.length.count) == ("sglang", "log line", 2)
    assert any("1 x log line of vllm, the last 2.01" in warning for warning in log.warnings)
    assert any("average of the server of sglang, the last 2.50" in warning for warning in log.warnings)


def test_hidden_and_absurd_numbers() -> None:
    log = read(decode(0.0), decode(0.5), decode(2.0))
    assert log.length.count == 2
    assert "below 1 (0.50)" in " ".join(log.warnings)
    with refused(FileError, "no accept length"):
        read("accept len: 99999999999999999999999")


def test_the_flags_maximum() -> None:
    log = read(decode(1.9), decode(2.0))
    assert check_against(log, 2) == check_against(log, None) == ""
    assert "of different runs" in check_against(read(decode(3.1)), 2)


def test_a_log_of_any_size_keeps_few_points_and_exact_statistics() -> None:
    count = 3 * MAX_POINTS

    def lines() -> Iterator[str]:
        for i in range(count):
            yield decode(1 + i % 3)
            yield "y" * 200

    log = read_log(lines())
    assert len(log.points) <= MAX_POINTS + 1
    assert (log.length.count, log.length.mean, log.length.median) == (count, pytest.approx(2.0), 2.0)
    gaps = {b.line - a.line for a, b in zip(log.points, log.points[1:], strict=False)}
    assert len(gaps) == 1, "evenly spaced"


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(b"\xff\xfe caf\xe9\r\n".removeprefix(b"\xff\xfe") + OLDEST.encode() + b"\r" + MIDDLE.encode())
    assert [line for line in log_lines(path) if "accept" in line] == [OLDEST, MIDDLE]
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8")):
        path.write_bytes(mark + f"é\n{MIDDLE}\n".encode(encoding))
        assert list(log_lines(path)) == ["é", MIDDLE]
    with refused(PathError, "no such file"):
        list(log_lines(tmp_path / "absent"))
    with refused(FileError, "a folder"):
        list(log_lines(tmp_path))


def test_a_line_without_an_end_comes_in_pieces() -> None:
    class Endless(BytesIO):
        left = 3 * MAX_JSON

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None and 0 < size <= 1 << 20
            self.left -= size
            return b"x" * size if self.left >= 0 else b""

    pieces = [len(piece) for piece in stream_lines(Endless())]
    assert max(pieces) < 2 * MAX_JSON
    assert sum(pieces) == 3 * MAX_JSON


def test_the_json_of_a_log() -> None:
    data = json.loads(json.dumps(log_json(read(VLLM_LOAD, VLLM))))
    assert data["accept_length"]["value"] == pytest.approx(2.01)
    assert (data["version"], data["accept_rate"]["count"], data["points"][0]["line"]) == (None, 1, 2)

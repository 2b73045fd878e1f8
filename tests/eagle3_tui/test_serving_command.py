"""The command `serving`, run as users run it: every part alone, all together, and refusals of one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eagle3_tui import cli

FLAGS = (
    "python -m sglang.launch_server --model-path /m --speculative-algorithm EAGLE3 --speculative-draft-model-path /d "
    "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 16 --max-running-requests 1"
)
DECODE = (
    "[2026-01-01 00:00:00] Decode batch, #running-req: 1, #token: 5, token usage: 0.00, accept len: 1.90, accept rate: "
    "0.95, cuda graph: True, gen throughput (token/s): 46.70, #queue-req: 0"
)
VLLM = (
    "INFO 10-26 12:36:16 [loggers.py:127] Engine 000: Avg generation throughput: 60.0 tokens/s, Running: 1 reqs\n"
    "INFO 10-26 12:36:16 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted: 140 tokens, "
    "Drafted: 300 tokens, Per-position acceptance rate: 0.700, 0.400, 0.300, Avg Draft acceptance rate: 46.7%\n"
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Ran:
        code = cli.main(["serving", *(str(word) for word in words)])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_text(f"noise\n{DECODE}\n" * 30)
    return path


def test_flags_alone(run: Run) -> None:
    code, out, err = run("--flags", FLAGS, "--server", "sglang@0.5.9")
    assert (code, err) == (0, "")
    assert out.startswith("flags of sglang@0.5.9: EAGLE3\n")
    assert "  a round: a chain of 1 draft(s), 2 tokens verified, accept length at most 2\n" in out
    assert "  changed: draft tokens 16 -> 2\n" in out
    assert "server_args.py, sglang 0.5.9" in out


def test_flags_from_a_file_as_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(FLAGS.replace(" --", " \\\n  --"))
    ran = run("--flags", f"@{tmp_path / 'run.sh'}", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["effective"]["max_accept_length"] == 2
    assert (ran.json["flags"]["steps"], ran.json["flags"]["source"]) == (1, "flags")
    assert (ran.json["log"], ran.json["expectation"], ran.json["verdict"]) == (None, None, None)


def test_a_log_alone(run: Run, log: Path) -> None:
    code, out, err = run("--server-log", log)
    assert (code, err) == (0, "")
    assert "log of sglang (version not told): accept length 1.90\n" in out
    assert "30 x log line in 60 lines" in out
    assert "over time: steady, 1.90 in the first quarter, 1.90 in the last" in out
    assert "accept len / T" in out
    assert "verdict" not in out, "there is nothing to compare with"
    assert "verdict (server): look at the server" in run("--server-log", log, "--accept-length", "3.5/5").out


def test_a_log_that_tells_the_flags(run: Run, log: Path) -> None:
    start = (
        "sglang==0.5.9\nserver_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE3', "
        "speculative_draft_model_path='/d', speculative_num_steps=1, speculative_eagle_topk=1, "
        "speculative_num_draft_tokens=2)\n"
    )
    log.write_text(start + log.read_text())
    data = run("--server-log", log, "--json").json
    assert (data["flags"]["source"], data["effective"]["server"]) == ("log", "sglang@0.5.9")
    assert data["effective"]["max_accept_length"] == 2
    assert data["verdict"]["kind"] == "flags"
    assert "as the log tells them" in run("--server-log", log).out


def test_the_founding_story_in_one_line(run: Run, log: Path) -> None:
    words = ("--flags", FLAGS, "--server", "sglang@0.5.9", "--base-speed", 90, "--accept-length", "2.9/5")
    for more in (("--server-log", log), ("--point", "46.7@1.9")):
        code, out, _ = run(*words, *more)
        assert code == 0
        for said in (
            "a round costs 3.66 steps of the server without drafts, so accept length 3.66 breaks even",
            "at most 2 with these flags: 49.2 tokens/s, 0.55 x: these flags can never pay",
            "verdict (flags): the flags limit: served 1.90 of at most 2",
        ):
            assert said in out, said


def test_speed_alone_and_what_is_missing(run: Run, log: Path) -> None:
    code, out, _ = run("--base-speed", 90, "--point", "46.7@1.9")
    assert code == 0 and "3.66 breaks even" in out and "number of drafts a round is not known" in out
    out = run("--base-speed", 90, "--point", "46.7@1.9/1", "--point", "50@2.4/3", "--joint", "0.9,0.4,0.1").out
    assert "measured at 2 numbers of drafts: 1, 3" in out and "best number of drafts: 0\n" in out
    assert "speed: no point" in run("--base-speed", 90).out
    log.write_text(log.read_text().replace("#running-req: 1", "#running-req: 2"))
    assert "speed: no point" in run("--base-speed", 90, "--server-log", log).out
    out = run("--flags", FLAGS, "--base-speed", 90, "--point", "46.7@1.9", "--accept-length", "2.9").out
    assert "more than these flags allow" in out


def test_vllm_from_stdin_with_the_best_number_of_drafts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(VLLM.encode())))
    flags = '{"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}'
    code, out, err = run("--server-log", "-", "--flags", flags, "--base-speed", 40)
    assert (code, err) == (0, "")
    for said in ("first i drafts right: 0.700, 0.400, 0.300", "a round costs 1.60 steps", "best number of drafts:"):
        assert said in out


def test_a_checkpoint_tells_what_the_rules_need(run: Run) -> None:
    wrong = FLAGS.replace("EAGLE3", "EAGLE")
    assert "1.00" not in run("--flags", wrong).out
    ran = run("demo", "--flags", wrong, "--json")
    assert ran.code == 0
    assert ran.json["checkpoint"]["fc_inputs"] == 3
    assert any(o["kind"] == "wrong" and "EAGLE3" in o["why"] for o in ran.json["effective"]["overrides"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Nothing to do"),
        (("--flags", FLAGS, "--server", "vllm"), "flags of sglang"),
        (("--flags", "--page-size 1"), "do not tell the engine"),
        (("--flags", "@absent"), "cannot read the flags"),
        (("--flags", FLAGS, "--server", "tgi"), "the server 'tgi'"),
        (("--flags", "--speculative-num-steps x"), "a whole number"),
        (("--server-log", "absent"), "no such file"),
        (("--server-log", "."), "a folder"),
        (("--server-log", "empty"), "no accept length"),
        (("--base-speed", "0"), "--base-speed"),
        (("--base-speed", "90", "--point", "x"), "TOK/S@LENGTH"),
        (("--flags", FLAGS, "--point", "46.7@1.9"), "need --base-speed"),
        (("--base-speed", "90", "--point", "46.7@1.9", "--accept-length", "x"), "--accept-length"),
        (("--base-speed", "90", "--point", "46.7@1.9", "--joint", "0.5,x"), "--joint"),
        (("--base-speed", "90", "--point", "46.7@1.9", "--joint", "0.5,0.9"), "that rise"),
        (("absent", "--flags", FLAGS), "absent"),
    ],
)
def test_refusals_are_one_line(
    run: Run, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1 and "Traceback" not in err


def test_what_the_flags_hold_is_shown_harmlessly(run: Run) -> None:
    ran = run("--flags", FLAGS.replace("--max-running", "--speculative-token-map '/t\x1b[31m\u202e' --max-running"))
    assert ran.code == 0
    assert "/t\\x1b[31m\\u202e" in ran.out and "\x1b" not in ran.out


def test_to_a_file_and_help(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--flags", FLAGS, "-o", tmp_path / "out.txt")
    assert (code, out) == (0, "")
    assert (tmp_path / "out.txt").read_text().startswith("flags of sglang")
    assert "serving" in run("--help").out


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom eagle3_tui import cli\n"
        f"assert cli.main(['serving', 'demo', '--flags', {FLAGS!r}, '-o', {str(tmp_path / 'o')!r}]) == 0\n"
        "print(sorted(name for name in ('torch', 'textual', 'numpy', 'pyarrow') if name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_checkpoint_on_samples_beside_the_server(run: Run, tmp_path: Path) -> None:
    """Good as trained, bad as this server computes it, and bad when served: the wiring."""
    from eagle3_tui import demo

    sample = demo.OUTPUT.parent / "samples/held_out/data_1536.pt"
    flags = FLAGS.replace("num-steps 1", "num-steps 5").replace("tokens 16", "tokens 6") + " --disable-cuda-graph"
    common = ["demo", "-s", sample, "--slots", demo.slot_labels(), "--flags", flags, "--server", "sglang@0.5.9"]
    predicted = run(*common, "--json").json["offline"]["served"]["walk"]
    (tmp_path / "server.log").write_text(DECODE.replace("1.90", f"{predicted:.2f}") + "\n")
    data = run(*common, "--server-log", tmp_path / "server.log", "--base-speed", 90, "--json").json
    trained, served = data["offline"]["trained"], data["offline"]["served"]
    counted = {tuple(o["slots"]): o["accept_length"] for o in json.loads(_score(sample))["orderings"]}
    assert trained["length"] == pytest.approx(counted[0, 1, 2]["mean"]) and trained["rows"] == counted[0, 1, 2]["rows"]
    assert served["length"] < trained["length"] - 0.5 and data["offline"]["why_not_served"] == ""
    assert data["verdict"]["kind"] == "wiring"
    assert len(data["expectation"]["choices"]) >= 5  # the joint curve is the served one's
    text = run(*common, "--server-log", tmp_path / "server.log").out
    assert "offline accept length, bonus counted, mean of rows" in text and "verdict (wiring)" in text
    refused = run("-s", sample, "--flags", FLAGS)
    assert (refused.code, refused.out) == (2, "") and "PATH" in refused.err


def test_offline_lengths_stand_by_group(run: Run, tmp_path: Path) -> None:
    from eagle3_tui import demo

    folder = tmp_path / "samples"
    for name in ("train/data_3.pt", "held_out/data_1536.pt"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).symlink_to(demo.OUTPUT.parent / "samples" / name)
    (folder / "held_out/data_9.pt").write_bytes(b"no sample")
    (tmp_path / "server.log").write_text(DECODE.replace("1.90", "1.60") + "\n")
    flags = FLAGS.replace("num-steps 1", "num-steps 5").replace("tokens 16", "tokens 6")
    words = ["demo", "-s", folder, "--slots", demo.slot_labels(), "--server-log", tmp_path / "server.log"]
    words += ["--flags", flags, "--server", "sglang@0.5.23"]
    data = run(*words, "--json").json
    offline = data["offline"]
    assert [(group["name"], group["kind"]) for group in offline["groups"]] == [
        ("held-out", "held-out"),
        ("training", "training"),
    ]
    alone = [run(*words[:2], folder / name, *words[3:], "--json").json["offline"] for name in ("held_out", "train")]
    assert [group["trained"]["joint"] for group in offline["groups"]] == [one["trained"]["joint"] for one in alone]
    assert offline["trained"]["rows"] == sum(group["trained"]["rows"] for group in offline["groups"])
    assert offline["trained"]["samples"] == "2 samples"
    assert any("data_9.pt" in warning for warning in offline["warnings"])
    assert any("on held-out samples" in reason for reason in data["verdict"]["reasons"])
    named = run(*words, "--group", "some=*_3.pt", "--group", "none=*.npz")
    lines = [line.split() for line in named.out.splitlines()]
    assert ["group", "of", "training", "trained", "walk", "served", "walk", "rows"] in lines
    assert [line[:2] for line in lines if line[:1] in (["some"], ["other"])] == [
        ["other", "held-out"],
        ["some", "training"],
    ]
    assert "  warning: --group none=*.npz matches no sample" in named.out


def _score(sample: Path) -> str:
    command = [sys.executable, "-m", "eagle3_tui", "score", "demo", "-s", str(sample), "--ordering", "0,1,2", "--json"]
    return subprocess.run([*command, "--no-log"], capture_output=True, text=True, check=True).stdout

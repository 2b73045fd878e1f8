"""What `check` says of a launch line: flags that hide everything else come first; the cure is a flag to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter.checks.finding import ERROR, WARNING, Finding
from drafter.serving.effective import DrafterFacts
from drafter.serving.flags import parse_flags
from drafter.serving.serve import effective
from tests.drafter.static_faults import FAULTS, whole
from tests.drafter.test_checks_static import WHOLE, checked

LINE = "--speculative-algorithm {} --speculative-num-steps {} --speculative-eagle-topk 1"


def cure(line: str, what: str) -> str:
    made = effective(parse_flags(line), "sglang@0.5.14", DrafterFacts(is_eagle3=True, fc_inputs=3))
    return next(one.cure for one in made.overrides if one.what == what)


@pytest.mark.parametrize(
    ("steps", "tokens", "meant"),
    [(1, 16, (3, 4)), (1, 3, (2, 3)), (2, 16, (3, 4)), (5, 16, (5, 6)), (5, 4, (5, 6)), (2, None, (2, 3))],
)
def test_a_clamped_chain_is_told_the_steps_that_were_meant(
    steps: int, tokens: int | None, meant: tuple[int, int]
) -> None:
    """One step and 16 draft tokens: asking for the two that run would cure nothing."""
    line = LINE.format("EAGLE3", steps) + (f" --speculative-num-draft-tokens {tokens}" if tokens else "")
    assert cure(line, "draft tokens") == (
        f"--speculative-num-steps {meant[0]} --speculative-num-draft-tokens {meant[1]}"
    )


def test_the_clamp_says_what_it_limits_the_length_to(tmp_path: Path) -> None:
    line = LINE.format("EAGLE3", 1) + " --speculative-num-draft-tokens 16"
    report = checked(whole(tmp_path / "drafter", WHOLE), flags=line)
    found = next(f for f in report.findings if f.check == "flags" and f.severity == WARNING)
    assert "at most 2" in found.title and found.fix.startswith("--speculative-num-steps 3 ")
    whole_round = [f for f in report.findings if "max_accept_length" in f.evidence]
    assert len(whole_round) == 1, "what a round comes to stands once"
    assert not any("round" in f.evidence for f in report.findings)


def eagle(folder: Path, served: float | None) -> Finding:
    report = checked(folder, flags=LINE.format("EAGLE", 3) + " --speculative-num-draft-tokens 4", served=served)
    assert report.verdict_kind == "serving" and "EAGLE" in report.verdict
    return report.findings[0]


def test_eagle_for_an_eagle3_head_comes_before_wrong_layer_ids(tmp_path: Path) -> None:
    fault = next(one for one in FAULTS if one.check == "layer-ids")
    found = eagle(whole(tmp_path / "drafter", fault), None)
    assert (found.check, found.severity, found.fix) == ("flags", ERROR, "--speculative-algorithm EAGLE3")
    assert found.title.startswith("algorithm: asked EAGLE; ") and "really EAGLE" not in found.title
    assert "just that" not in found.title


@pytest.mark.parametrize(("served", "recognised"), [(1.0, True), (1.6, False)])
def test_the_length_of_such_a_server_is_recognised(tmp_path: Path, served: float, recognised: bool) -> None:
    found = eagle(whole(tmp_path / "drafter", WHOLE), served)
    assert ("the served 1.00 is just that" in found.title) == recognised

"""A served length beside what that server computes, and what a server cannot compute of a flat checkpoint, measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from drafter.checks.case import asked_of
from drafter.checks.finding import ERROR, NOTE, Finding
from drafter.checks.run import Report, run_checks
from drafter.errors import SampleError
from drafter.views import views_json
from tests.faults.checked import brief, case_of
from tests.faults.world import World, healthy, write_world

SERVER = "sglang@0.5.23"


def flat(**options: object) -> World:
    """The healthy drafter as SGLang reads it; ids of depths 2, 4, 6."""
    made = healthy()
    return replace(made, layout="flat", options={**made.options, "layer_ids": [1, 3, 5], **options})


def checked(folder: Path, made: World, served: float | None = None, server: str | None = None) -> Report:
    session = write_world(folder, made)
    case = case_of(session, folder, served)
    case.asked, case.server = asked_of(None, server)
    return run_checks(case)


def of(report: Report, check: str) -> Finding:
    return next(f for f in report.findings if f.check == check)


def as_views(folder: Path, server: str) -> float:
    """The length of the rounds that `views` prints."""
    session = write_world(folder, flat())
    session.load()
    views = views_json(session.views(session.list_samples().paths))
    row = next(one for one in views["views"] if one["versions"][-1] == server)
    found: float = row["accept_length"]["walk"]["length"]
    return found


def test_the_residual_that_sglang_lacks_is_measured(tmp_path: Path) -> None:
    report = checked(tmp_path, flat())
    found = of(report, "server-cannot-compute-it")
    assert (found.severity, found.kind, found.evidence["server"]) == (NOTE, "K05", SERVER)
    assert "norm_before_residual" in found.title and "accept length 2.99 -> 1.04" in found.title
    assert found.fix.startswith("no key cures it: ") and "serve with vLLM" in found.fix
    assert "retrain with norm_before_residual false" in found.fix
    assert report.verdict_kind == "healthy" and "sglang@0.5.23 would reach only 1.04" in report.verdict
    named = checked(tmp_path / "named", flat(), server=SERVER)
    assert of(named, "server-cannot-compute-it").severity == ERROR and "accept length" in named.verdict


def test_nothing_is_measured_of_a_server_that_would_not_load_it_or_computes_it_all(tmp_path: Path) -> None:
    for name, made, server in (("nested", healthy(), None), ("vllm", flat(), "vllm@0.33.0")):
        report = checked(tmp_path / name, made, server=server)
        assert not [f for f in report.findings if f.check == "server-cannot-compute-it"], brief(report)


def test_a_served_length_stands_beside_what_the_named_server_computes(tmp_path: Path) -> None:
    length = as_views(tmp_path / "views", SERVER)
    found = of(checked(tmp_path / "check", flat(), round(length, 2), SERVER), "served-length")
    assert found.evidence["served view"] == pytest.approx(length, abs=0.0005)
    assert f"as {SERVER} computes it {length:.2f}" in found.title
    assert "norm_before_residual: patch the server" in found.fix


def test_without_a_server_the_config_is_spoken_of(tmp_path: Path) -> None:
    made = flat(layer_ids=[-1, 1, 3])  # depths 0, 2, 4: recorded, and not those of training
    report = checked(tmp_path, made, 1.1)
    found = of(report, "served-length")
    assert "as the config says" in found.title and "this server" not in found.title
    assert found.severity == NOTE


def test_a_server_that_feeds_what_is_not_recorded_cannot_be_computed(tmp_path: Path) -> None:
    report = checked(tmp_path, flat(layer_ids=[0, 2, 4]), 1.1, SERVER)
    title = of(report, "served-length").title
    assert "cannot be computed: it feeds states that are not recorded" in title
    assert f"as {SERVER} computes it" not in title


@pytest.mark.parametrize(("server", "first"), [(None, "fed slots 0,1,2"), (SERVER, f"{SERVER} (")])
def test_of_what_is_equally_near_that_which_is_proven_comes_first(
    tmp_path: Path, server: str | None, first: str
) -> None:
    """Next to nothing is accepted, as with many faults; that the config names other layers is known already."""
    found = of(checked(tmp_path, flat(layer_ids=[-1, 1, 3]), 1.05, server), "served-looks-like")
    assert len(found.evidence["not told from what is served"]) > 3
    assert next(iter(found.evidence["nearest"])).startswith(first)


def test_better_than_the_samples_is_no_fault(tmp_path: Path) -> None:
    report = checked(tmp_path, flat(), 4.9)
    title = of(report, "served-length").title
    assert "better than these samples" in title and "other text, or sampling" in title
    assert not report.failed and not [f for f in report.findings if f.check == "served-looks-like"]


def test_where_no_fault_can_be_compared_the_length_still_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise SampleError("no round to draft in")

    monkeypatch.setattr("drafter.checks.served_fit.fits", refuse)
    session = write_world(tmp_path, flat())
    case = case_of(session, tmp_path, 1.3)
    case.rates = (0.2, 0.1)
    report = run_checks(case)
    assert of(report, "served-length").severity == ERROR
    assert "served-looks-like" in {one.check for one in report.not_checked}

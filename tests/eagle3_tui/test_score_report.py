"""The parts of a score report that several samples have: which come first, how many, what is left out in words."""

from __future__ import annotations

from typing import Any

import pytest

from eagle3_tui import score_report, text_report
from tests.eagle3_tui.test_text_report import ordering as whole
from tests.eagle3_tui.test_text_report import scored

SLOTS = [[0, 1], [1, 0], [1, 2]]


def one(slots: list[int], hits: int, total: int = 10) -> dict[str, Any]:
    return {"slots": slots, "hits": hits, "total": total, "accept_length": {"mean": 1.5 if total else None, "rows": 9}}


def sample(name: str, hits: int, total: int = 10, **more: Any) -> dict[str, Any]:
    """`hits` are those of the ordering that is best overall; the others tempt with the reverse order."""
    orderings = [one([1, 0], total - hits, total), one([0, 1], hits, total)]
    return {"path": f"run/{name}", "tokens": 12, "slots": [], "orderings": orderings, **more}


def several(*samples: dict[str, Any], **changes: Any) -> dict[str, Any]:
    mean = {"mean_of_samples": {"accuracy": 0.625, "samples": 2}}
    orderings = [{**whole(slots, hits), **mean} for slots, hits in zip(SLOTS, (75, 74, 25), strict=True)]
    return scored(samples=list(samples), orderings=orderings, **changes)


def part(text: str, title: str) -> list[str]:
    """The lines below `title`, up to the next empty one."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    return lines[start + 1 : [*lines, ""].index("", start)]


THREE = (sample("c.pt", 5), sample("a.pt", 9), sample("d.pt", 0, 0), sample("b.pt", 2))


@pytest.mark.parametrize(
    ("sort", "names"), [("worst", ["b", "c", "a", "d"]), ("best", ["a", "c", "b", "d"]), ("name", ["a", "b", "c", "d"])]
)
def test_samples_are_sorted_by_the_best_ordering_and_those_without_rows_come_last(sort: str, names: list[str]) -> None:
    lines = part(score_report.score(several(*THREE), sort), "samples under 0,1")
    assert lines[0].split() == ["step", "0", "length", "tokens", "sample"]
    assert [line.split("/")[-1] for line in lines[1:]] == [f"{name}.pt" for name in names]
    assert "20.0 %  2/10    1.50      12  run/b.pt" in lines
    assert "     -   0/0       -      12  run/d.pt" in lines


def test_at_most_twenty_samples_are_shown() -> None:
    lines = part(score_report.score(several(*(sample(f"{i}", i, 40) for i in range(33)))), "samples under")
    assert [line.split("/")[-1] for line in lines[1:]] == [*map(str, range(20)), "... 13 more"]


def test_names_are_sorted_by_their_numbers() -> None:
    data = several(*(sample(f"data_{i}.pt", i) for i in (10, 9, 1)))
    lines = part(score_report.score(data, "name"), "samples under")
    assert [line.split("_")[-1] for line in lines[1:]] == ["1.pt", "9.pt", "10.pt"]


def test_one_sample_has_no_table_of_its_own() -> None:
    assert score_report.score(scored()) == text_report.score(scored())


def test_the_mean_of_samples_stands_beside_the_pooled_number() -> None:
    text = text_report.score(several(*THREE))
    assert "* t  0,1    75.0 %  75/100      62.5 %  75.0 %    2.50     -" in text
    assert "of samples" in text.splitlines()[3]
    assert "all rows are pooled; of samples: the mean of the samples' own step 0" in text
    assert "of samples" not in text_report.score(scored())


def group(name: str, hits: tuple[int, int, int], samples: int = 2) -> dict[str, Any]:
    return {"name": name, "samples": samples, "orderings": [one(s, h) for s, h in zip(SLOTS, hits, strict=True)]}


def test_groups_come_worst_first_each_ranked_by_itself() -> None:
    data = several(*THREE, groups=[group("good", (9, 1, 0)), group("bad\x1b", (1, 2, 5), 1), group("empty", (0, 0, 0))])
    data["groups"][2]["orderings"] = []
    text = score_report.score(data)
    heads = [line for line in text.splitlines() if line.startswith("group ")]
    assert heads == ["group bad\\x1b, 1 sample:", "group good, 2 samples:", "group empty, 2 samples:"]
    assert part(text, "group bad")[1:] == [
        " c   1,2    50.0 %  5/10    1.50",
        "~    1,0    20.0 %  2/10    1.50",
        "* t  0,1    10.0 %  1/10    1.50",
    ]


def test_a_group_shows_its_best_orderings_and_the_marked_ones() -> None:
    many = {"name": "many", "samples": 3, "orderings": [one([i, 9], 9 - i) for i in range(8)] + [one([0, 1], 0)]}
    lines = part(score_report.score(several(*THREE, groups=[many, group("b", (9, 9, 9))])), "group many")
    assert [line.split("%")[0][-7:].strip() for line in lines[1:6]] == ["90.0", "80.0", "70.0", "60.0", "50.0"]
    assert lines[6].startswith("* t  0,1") and lines[7:] == ["... 3 more orderings"]


def test_the_place_of_the_row() -> None:
    data = scored()
    data["orderings"][1]["positions"] = [
        {"from": 0, "to": 31, "hits": 3, "total": 4},
        {"from": 32, "to": 63, "hits": 0, "total": 0},
    ]
    assert part(score_report.score(data), "by the place of the row, under 0,1")[1:] == [
        "0-31   75.0 %  3/4",
        "32-63       -  0/0",
    ]


def test_what_was_left_out_is_in_the_report() -> None:
    skipped = [{"path": f"run/{i}\x1b.pt", "error": "an empty file"} for i in range(5)]
    lines = text_report.score(scored(skipped=skipped)).splitlines()
    assert "1 sample (5 more could not be scored), 9 tokens" in lines[1]
    assert [line for line in lines if "skipped" in line] == [
        f"skipped: run/{i}\\x1b.pt: an empty file" for i in range(3)
    ] + ["skipped: 2 more: --json has every one"]


def test_a_warning_of_many_samples_is_said_once() -> None:
    same = [sample(f"{i}.pt", 1, warnings=["no loss mask"]) for i in range(30)]
    other = [sample(f"x{i}.pt", 1, warnings=[f"NaN {i}"]) for i in range(22)]
    lines = [line for line in text_report.score(several(*same, *other)).splitlines() if "warning" in line]
    assert lines[0] == "warning: run/0.pt and 29 more: no loss mask"
    assert lines[1] == "warning: run/x0.pt: NaN 0"
    assert lines[20:] == ["... 3 more warnings: --json has every one"]

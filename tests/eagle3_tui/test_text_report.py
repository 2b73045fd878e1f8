"""Results as text: what the one sentence says in every case, the ranking, and that strings of files stay text."""

from __future__ import annotations

from typing import Any

import pytest

from eagle3_tui import text_report


def ordering(slots: list[int], hits: int, total: int = 100) -> dict[str, Any]:
    step = {"next_token": {"marginal": {"hits": hits, "total": total}}}
    length = {"mean": 2.5, "walk": {"length": None}}
    return {"slots": slots, "steps": [step, step], "accept_length": length}


def scored(**changes: Any) -> dict[str, Any]:
    data = {
        "checkpoint": {"path": "run/7", "dialect": "flat", "fc_inputs": 2},
        "device": "cpu",
        "dtype": "float32",
        "view": "trained",
        "mask": "next",
        "depth": 2,
        "samples": [{"tokens": 9, "slots": [{"claimed": "embed"}, {"claimed": "3"}, {"claimed": "last"}]}],
        "orderings": [ordering([1, 2], 25), ordering([0, 1], 75), ordering([1, 0], 74)],
        "best": [0, 1],
        "tied_with_best": [[1, 0]],
        "configured": [1, 2],
        "trained": [0, 1],
        "coverage": {"hits": 9, "total": 10},
        "reasons": {},
    }
    return {**data, **changes}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "The config selects slots 1,2 (depths 3,last): 25.0 %; the best ordering is 0,1: 75.0 %."),
        ({"configured": [0, 1]}, "Of these orderings the config selects slots 0,1 (depths embed,3), the best: 75.0 %."),
        ({"configured": [1, 0]}, "74.0 %, which the rows cannot tell from the best, 0,1: 75.0 %."),
        ({"configured": [2, 0]}, "The config selects slots 2,0 (depths last,embed): not scored; the best"),
        ({"configured": None, "reasons": {"configured": "no ids"}}, "What the config selects cannot be told: no ids."),
        ({"best": None}, "No row counts, so nothing can be said: mask next leaves none; try another --mask."),
    ],
)
def test_the_verdict(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in text_report.score(scored(**changes))


@pytest.mark.parametrize(
    ("mask", "supervised", "most", "sentence"),
    [
        ("next", 0, 5, "none of the 18 tokens read is supervised (--rows 5); try more --rows or --mask all."),
        ("same", 0, None, "none of the 18 tokens read is supervised; try --mask all or --supervised all."),
        ("next", 1, 5, "mask next leaves none (--rows 5); try more --rows or another --mask."),
        ("all", 0, None, "18 tokens are too few; try longer samples."),
        ("all", None, 5, "18 tokens are too few (--rows 5); try more --rows."),
    ],
)
def test_no_row_counts_says_why_and_what_to_ask_for(
    mask: str, supervised: int | None, most: int | None, sentence: str
) -> None:
    samples = [{"path": name, "tokens": 9, "supervised": supervised, "slots": [], "orderings": []} for name in "ab"]
    orderings = [{**ordering([0, 1], 0, 0), "mean_of_samples": {"accuracy": None}}]
    data = scored(best=None, mask=mask, samples=samples, orderings=orderings)
    assert f"No row counts, so nothing can be said: {sentence}\n" in text_report.score(data, most)


def test_the_table_is_ranked_and_marked() -> None:
    lines = text_report.score(scored()).splitlines()
    rows = [line for line in lines if "/100" in line]
    assert rows == [
        "* t  0,1    75.0 %  75/100  75.0 %    2.50     -",
        "~    1,0    74.0 %  74/100  74.0 %    2.50     -",
        " c   1,2    25.0 %  25/100  25.0 %    2.50     -",
    ]
    assert "in the draft vocabulary: 90.0 % (9/10) of the tokens to predict" in lines


def test_the_best_leads_its_equals() -> None:
    data = scored(orderings=[ordering([1, 0], 75), ordering([0, 1], 75)])
    assert [o["slots"] for o in text_report.ranked(data)] == [[0, 1], [1, 0]]


def test_no_rows_are_no_percent() -> None:
    assert text_report.percent({"hits": 0, "total": 0}) == "-"


def test_reasons_and_hostile_strings() -> None:
    text = text_report.score(scored(reasons={"in_vocab": "\x1b]0;x\x07\u202e", "configured": "not shown"}))
    assert "no in_vocab: \\x1b]0;x\\x07\\u202e\n" in text
    assert "not shown" not in text


def test_a_wide_script_keeps_the_columns() -> None:
    assert text_report.table([["漢字", "1"], ["a", "22"]], left=(0,)) == ["漢字   1", "a     22"]


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (19_509_688, "19.5 MB"), (4_700_000_000, "4.7 GB")],
)
def test_sizes(count: int, said: str) -> None:
    assert text_report.size(count) == said

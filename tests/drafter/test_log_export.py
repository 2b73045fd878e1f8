"""The session log and its report: nothing is lost, nothing of a stranger becomes Markdown, no home folder leaves."""

from __future__ import annotations

import getpass
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from drafter import export as exports
from drafter.errors import FileError
from drafter.export import MOST_CALLS, export, markdown, shorten, write_atomically
from drafter.json_text import json_text
from drafter.log import SessionLog, default_path, digest, read_log
from tests.drafter.helpers import refused
from tests.tiny_world import World, tiny_world

HOSTILE = "|`<img src=x>`| [x](http://y) @you owner/repo#7 **b** \x1b[2J\u202e\n# heading"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return tiny_world(tmp_path_factory.mktemp("world"), count=1)


def records_of(world: World, log: SessionLog | None = None) -> list[dict[str, Any]]:
    session = world.session(log, depth=2, slots="embed,2,4,6")
    session.step(5, (0, 1, 2))
    session.score(world.samples, [(0, 1, 2), (1, 2, 3)])
    session.close()
    return session.log.records


# --- the log


def test_a_log_whose_last_line_was_cut(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    whole = records_of(world, SessionLog(path, []))
    text = path.read_text()
    assert len(read_log(path)) == len(whole)
    path.write_text(text[:-20])
    cut = read_log(path)
    assert len(cut) == len(whole) - 1
    assert "# eagle3-tui session" in markdown(cut)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no header"),
        ("{}\n", "no header"),
        ('{"record": "header"}\nnot json\n{}\n', "line 2"),
        ('{"record": "header"}\n[]\n', "line 2"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_what_is_no_log(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with refused(FileError, word, "log.jsonl"):
        read_log(path)


def test_logs_that_cannot_be_read(tmp_path: Path) -> None:
    with refused(FileError, "No such file"):
        read_log(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with refused(FileError, "not text"):
        read_log(tmp_path / "bytes")


def test_a_log_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = SessionLog(tmp_path / "file/log.jsonl", [])
    log.call("find", {}, [])
    assert log.problem.startswith("no session log:")
    assert [r["record"] for r in log.records] == ["header", "call"]


def test_a_disk_that_is_full_ends_the_log_only() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    log = SessionLog(Path("/dev/full"), [])
    log.call("find", {}, [])
    assert "ends here" in log.problem
    assert len(log.records) == 2


def test_default_path_is_in_the_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_path().parent.name == "eagle3-tui"
    assert default_path().suffix == ".jsonl"


def test_digests_do_not_depend_on_order_or_on_what_is_no_number() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": float("nan")}) == digest({"a": None})
    assert digest({"a": 1}) != digest({"a": 2})


def test_json_text_is_json() -> None:
    value = {"x": [float("nan"), float("inf"), 1.5], "text": "é\udcff", "t": (1,)}
    assert json.loads(json_text(value)) == {"x": [None, None, 1.5], "text": "é\udcff", "t": [1]}
    assert json_text(value).isascii()
    assert json_text(value, indent=None).count("\n") == 1


# --- the report


def test_export_of_a_session_without_a_log_file(world: World, tmp_path: Path) -> None:
    records = records_of(world)
    report, data = export(records, tmp_path / "out")
    assert json.loads(data.read_text()) == json.loads(json_text(shorten(records)))
    text = report.read_text()
    for part in ("## Checkpoint", "## Scores", "## Last steps", "## Calls", "configured `[1, 2, 3]`"):
        assert part in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([report.name, data.name])


def test_the_report_of_a_log_file_is_that_of_the_session(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    records = records_of(world, SessionLog(path, []))
    assert markdown(read_log(path)) == markdown(records)


def test_homes_and_users_are_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: Path("/srv/people/ada")))
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    said = {
        "/srv/people/ada/run": ["/home/bob/x", "/Users/eve", "--samples=/srv/people/ada", "in /home/bob; check"],
        "other": ("/srv/people/adamant/x", "/data/ada/y", "ada is not a path", 3, None),
    }
    assert shorten(said) == {
        "~/run": ["~/x", "~", "--samples=~", "in ~; check"],
        "other": ["/srv/people/adamant/x", "/data/~/y", "ada is not a path", 3, None],
    }


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert shorten("/data/x") == "/data/x"


def _hostile(value: Any) -> Any:
    """Every string of a record made hostile, but for what the records' own structure needs."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, dict):
        return {k: v if k in ("record", "call") else _hostile(v) for k, v in value.items()}
    return [_hostile(v) for v in value] if isinstance(value, list) else value


def test_hostile_strings_stay_text(world: World) -> None:
    records = [_hostile(r) for r in json.loads(json_text(records_of(world)))]
    records.append(
        {"record": "error", "call": HOSTILE, "inputs": {}, "error": HOSTILE, "trace": HOSTILE + "\n```\n<b>"}
    )
    text = markdown(records)
    assert all(line.isprintable() for line in text.splitlines())
    assert "heading" in text
    assert not any(line.startswith("# heading") for line in text.splitlines())
    for line in text.splitlines():
        if line.startswith("      "):
            continue  # a traceback, indented as code
        bare = _outside_code(line)
        for thing in ("<img", "[x](", "@you", "#7", "**b**"):
            assert thing not in bare, line
        if line.startswith("|"):
            assert len(_cells(line)) in (3, 4, 5, 10), line


def _outside_code(line: str) -> str:
    """`line` without its code spans (a backslash before a backtick keeps it from opening one) and escapes."""
    kept, code, at = "", False, 0
    while at < len(line):
        if not code and line[at] == "\\":
            kept, at = kept + " ", at + 2
            continue
        if line[at] == "`":
            code = not code
            kept += " "
        elif not code:
            kept += line[at]
        at += 1
    assert not code, line
    return kept


def _cells(line: str) -> list[str]:
    return line.replace("\\|", "").strip("|").split("|")


def test_what_is_no_number_in_a_step(world: World) -> None:
    records = json.loads(json_text(records_of(world)))
    step = next(r for r in records if r.get("call") == "step")
    step["result"]["predictions"][0]["prob"] = None
    assert "| - |" in markdown(records)


def test_a_long_session_fits_into_an_issue(world: World) -> None:
    records = records_of(world)
    score = next(r for r in records if r.get("call") == "score")
    score["result"]["samples"] *= 1000
    records += [next(r for r in records if r.get("call") == "choose_sample")] * 1000
    text = markdown(records)
    assert f"The last {MOST_CALLS} of" in text
    assert "and 988 more" in text
    assert len(text) < 60_000


# --- writing


def test_write_atomically(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/x.json"
    with refused(FileError, "No such file"):
        write_atomically(path, "one")
    assert write_atomically(path, "one", make_folder=True) == path
    write_atomically(path, "two")
    assert path.read_text() == "two"
    assert os.listdir(path.parent) == ["x.json"]


def test_a_write_that_fails_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write_atomically(path, "one")

    def full(self: Path, text: str, encoding: str) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exports.Path, "write_text", full)
    with refused(FileError, "No space left on device", "x.json"):
        write_atomically(path, "two")
    assert path.read_text() == "one"
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(FileError, "cannot write"):
        write_atomically(tmp_path / "file/x.json", "x")
    assert stat.S_ISREG((tmp_path / "file").stat().st_mode)


def test_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n", encoding="utf-8")
    log = SessionLog(notes, ["x"])
    log.write({"record": "call"})
    log.close()
    assert notes.read_text(encoding="utf-8") == "mine\n"
    assert log.path is None and "another kind" in log.problem


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("old", encoding="utf-8")
    link = tmp_path / "link.json"
    link.symlink_to(real)
    assert write_atomically(link, "new") == link
    assert link.is_symlink() and real.read_text(encoding="utf-8") == "new"
    null = Path("/dev/null")
    write_atomically(null, "nothing")
    assert null.is_char_device()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "real.json"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in /Users/Jane Doe/models/x; expected", "in ~/models/x; expected"),
        ("/mnt/home/alice/x", "~/x"),
        ("C:\\Users\\jane\\x", "~\\x"),
        ("/homes/bob and more", "~ and more"),
        ("/data/homework/x", "/data/homework/x"),
    ],
)
def test_homes_of_others_are_shortened(text: str, shown: str) -> None:
    assert shorten(text) == shown

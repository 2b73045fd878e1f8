"""View 6: the session log as it grows, newest last."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from textual.app import ComposeResult

from eagle3_tui.screens.view import Detail, View
from eagle3_tui.widgets.line_table import Cells, Column, LineTable, RowSource


class LogRows(RowSource):
    """The records, which the engine's thread appends to; only ever read by number."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records
        self._count = len(records)

    def __len__(self) -> int:
        return self._count

    def key(self, i: int) -> object:
        return i

    def cells(self, i: int) -> Cells:
        record = self._records[i]
        when = time.strftime("%H:%M:%S", time.localtime(record["time"]))
        kind = record.get("record", "?")
        look = "bad" if kind == "error" else ""
        said = record.get("error") or json.dumps(record.get("inputs", record.get("argv", "")))
        return [
            (when, "dim"),
            (str(record.get("call", kind)), look),
            (record.get("digest", "")[:8], "dim"),
            (said, look),
        ]


class LogView(View):
    HINTS = "/ filter  y copy  e export  ? help  q quit"

    def compose(self) -> ComposeResult:
        yield LineTable([Column("time", 8), Column("call", 18), Column("digest", 8), Column("inputs")], id="log-table")
        yield Detail(classes="detail")

    def table(self) -> LineTable:
        return self.query_one(LineTable)

    def changed(self, what: str) -> None:
        table, log = self.table(), self.controller.session.log
        follow = table.cursor >= table.line_count - 1
        table.set_rows(LogRows(log.records))
        if follow:
            table.action_last()
        where = f"written to {log.path}" if log.path is not None else log.problem or "kept in memory only (--no-log)"
        self.query_one(Detail).say(
            [[(f"{len(log.records)} records, {where}", "")], [("e: Markdown and JSON for a bug report", "dim")]],
            cut=(0,),
        )

    def tables_of_another(self) -> Iterable[LineTable]:
        return []

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()

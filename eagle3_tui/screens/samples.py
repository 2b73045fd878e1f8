"""View 2: the sample files with their scores, the text of the chosen one with its loss mask marked, its slots, claimed
and probed, and two recordings of the same tokens compared.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from eagle3_tui.screens import recordings, sample_files, sample_slots
from eagle3_tui.screens.panes import PanesView
from eagle3_tui.screens.sample_text import TextPane
from eagle3_tui.screens.view import Rows, convention, percent
from eagle3_tui.widgets.line_table import LineTable, NoRows

FILES, TEXT, SLOTS, RECORDINGS = range(4)
_LINES, _TALL = 6, 10  # of the detail: files and text, slots and recordings


class SamplesView(PanesView):
    PANES = ("files", "text", "slots", "recordings")
    HINTS = "enter open  tab pane  s sort  a score all  space mark  / filter  ? help"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort", id="samples.sort", tooltip="as listed, worst, best, or fewest supervised first"),
        Binding("a", "score_all", "Score all", id="samples.all", tooltip="every listed sample, current ordering"),
        Binding("A", "sweep", "Sweep", id="samples.sweep", tooltip="every ordering on every listed sample"),
        Binding("u", "survey", "Read all", id="samples.survey", tooltip="read ids and masks of all, find broken ones"),
        Binding("space", "mark", "Mark", id="samples.mark", tooltip="mark a recording; a second one is compared to it"),
        Binding("M", "supervised", "Mask source", id="samples.mask", tooltip="loss mask: recorded, by roles, all"),
    ]

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sort = sample_files.LISTED

    def make_panes(self) -> Iterator[Widget]:
        yield LineTable(sample_files.columns(80), empty="looking for samples", id="files")
        yield TextPane(id="text")
        yield LineTable(sample_slots.COLUMNS, empty="no sample opened", id="slots")
        yield LineTable(recordings.COLUMNS, empty=recordings.EMPTY, id="recordings")

    @property
    def _files(self) -> LineTable:
        return self.query_one("#files", LineTable)

    def changed(self, what: str) -> None:
        state = self.state
        if what in ("all", "samples", "sample", "survey", "score", "pool", "ordering", "wiring", "files"):
            self._show_files()
        if what in ("all", "sample"):
            self.query_one(TextPane).show(state.sample, self.controller.session.tokens)
        if what in ("all", "sample", "probes", "ordering"):
            slots = list(state.sample.slots) if state.sample is not None else []
            rows = Rows(slots, lambda i: sample_slots.slot_cells(state, slots[i]), lambda i: i)
            self.query_one("#slots", LineTable).set_rows(rows)
        if what in ("all", "comparison"):
            self._show_recordings()
        if what == "comparison":
            self.show_pane(RECORDINGS)
        self._show_detail()

    def _show_files(self) -> None:
        samples, table = self.state.samples, self._files
        if samples is None:
            return
        table.empty = samples.why
        width = table.size.width or self.size.width
        wanted = sample_files.columns(width)
        if wanted != table.columns:
            table.set_columns(wanted)
        order = sample_files.order(samples.paths, self._sort, self.state)
        table.set_rows(sample_files.SampleFiles(samples.paths, order, self.state, width))

    def _show_recordings(self) -> None:
        found, table = self.state.comparison, self.query_one("#recordings", LineTable)
        if found is None:
            return table.set_rows(NoRows())
        matches = found.matches
        table.set_rows(Rows(matches, lambda i: recordings.match_cells(found, matches[i]), lambda i: i))

    # ------------------------------------------------------------------ the detail

    def _show_detail(self) -> None:
        state = self.state
        self.detail.set_class(self.current in (SLOTS, RECORDINGS), "tall")
        if self.current == RECORDINGS and state.comparison is not None:
            key = self.query_one("#recordings", LineTable).key
            match = key if isinstance(key, int) else None
            return self.detail.say(recordings.lines(state.comparison, match, self.size.width, _TALL))
        if self.current == SLOTS and state.sample is not None:
            key = self.query_one("#slots", LineTable).key
            return self.detail.say(
                sample_slots.slot_lines(state, key if isinstance(key, int) else 0, self.size.width, _TALL)
            )
        if self.current == TEXT and state.sample is not None:
            return self.detail.say([[(fact, "")] for fact in state.mask_facts[:_LINES]])
        self._show_file_detail()

    def _show_file_detail(self) -> None:
        state = self.state
        count = len(state.samples.paths) if state.samples is not None else 0
        where = state.samples.why if state.samples is not None else ""
        lines = [[(f"{count} sample{'' if count == 1 else 's'}", ""), (f": {state.survey_said}" * bool(count), "")]]
        if not state.survey_said:
            lines[0] = lines[0][:1]
        lines.append([(where, "dim")])
        path = self._path()
        known = state.surveyed.get(path) if path is not None else None
        if known is not None and known.problem:
            look = "bad" if known.error else "warn"
            lines += [[(line, look)] for line in textwrap.wrap(known.problem, max(self.size.width, 20))]
        elif state.problem and state.sample is None:
            lines += self.problem_lines(most=_LINES - len(lines))
        elif path in state.skipped:
            lines += [[(line, "bad")] for line in textwrap.wrap(state.skipped[path], max(self.size.width, 20))[:2]]
        elif known is not None:
            lines.append([(f"{known.format}; {known.slots} states of {known.width}, {known.dtype}", "dim")])
        said = [text for text in (self._scored(path), self._pooled()) if text]
        lines += [[(text, "")] for text in said]
        lines += [[(convention(self.controller), "dim")]] if said else []
        self.detail.say(lines[:_LINES], cut=(1,))

    def _scored(self, path: Path | None) -> str:
        """The score of one file under the current ordering."""
        state = self.state
        one = sample_files.score_of(state, path) if path is not None else None
        if one is None or state.ordering is None:
            return ""
        length = f", length {one.length:.2f} of {one.length_rows} rows" if one.length is not None else ""
        said = f"this sample {percent(one.ratio)} % ({one.hits}/{one.total}){length}"
        return said + (f", {one.not_finite} rows without numbers" if one.not_finite else "")

    def _pooled(self) -> str:
        """The score of all listed samples under the current ordering, as far as it is."""
        pool, ordering = self.state.pool, self.state.ordering
        counts = pool.result.scores.get(ordering) if pool is not None and ordering is not None else None
        if pool is None or counts is None:
            return ""
        accuracy, result = counts.accuracy, pool.result
        skipped = f" ({len(result.skipped)} skipped: {result.skipped[0][1]})" if result.skipped else ""
        done = f"{len(result.samples)}" + ("" if pool.complete else f" of {result.planned}")
        length = counts.lengths.mean
        said = f"{done} samples pooled {percent(accuracy.ratio)} % ({accuracy.hits}/{accuracy.total})"
        return said + (f", length {length:.2f} of {counts.lengths.rows} rows" if length is not None else "") + skipped

    # ------------------------------------------------------------------ keys

    def _path(self) -> Path | None:
        samples, key = self.state.samples, self._files.key
        return samples.paths[key] if samples is not None and isinstance(key, int) and key < len(samples.paths) else None

    def on_line_table_cursor_moved(self, event: LineTable.CursorMoved) -> None:
        event.stop()
        self._show_detail()

    def on_line_table_chosen(self, event: LineTable.Chosen) -> None:
        event.stop()
        path = self._path()
        if event.table.id == "files" and path is not None:
            self.controller.choose_sample(path)

    def action_sort(self) -> None:
        sorts = sample_files.SORTS
        self._sort = sorts[(sorts.index(self._sort) + 1) % len(sorts)]
        self.changed("files")
        known = self.state.sample_scores if "supervised" not in self._sort else self.state.surveyed
        count = len(self.state.samples.paths) if self.state.samples is not None else 0
        listed = self._sort == sample_files.LISTED or len(known) >= count
        hint = (
            ""
            if listed
            else f"; known of {len(known)} of {count}: {'u reads' if 'superv' in self._sort else 'a scores'} all"
        )
        self.controller.say(f"sorted {self._sort}{hint}")

    def action_score_all(self) -> None:
        self.controller.pool.start()

    def action_sweep(self) -> None:
        self.controller.score_all()

    def action_survey(self) -> None:
        self.controller.survey()

    def action_mark(self) -> None:
        path = self._path()
        if path is not None and self.current == FILES:
            self.controller.mark(path)

    def action_supervised(self) -> None:
        self.controller.cycle_supervised()

    def on_resize(self) -> None:
        if self.display:
            self._show_files()

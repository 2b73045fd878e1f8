"""Findings about a checkpoint and samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.errors import DrafterError
from drafter.files.find import Found
from drafter.log import Logged
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.checks.case import Case as CheckCase
    from drafter.checks.finding import Finding
    from drafter.checks.registry import Check
    from drafter.checks.run import Report as CheckReport
    from drafter.serving.flags import Asked
from drafter.session.core import Poll, no_poll
from drafter.session.facts import Facts


def _told(case: CheckCase, on_check: Callable[[str], None]) -> Callable[[Check], None]:
    """Tells `on_check` the name of each check, and what a long one is at."""
    name = ""

    def begin(check: Check) -> None:
        nonlocal name
        name = check.id
        on_check(name)

    case.tell = lambda text: on_check(f"{name}: {text}")
    return begin


class Checks(Facts):
    def check(
        self,
        found: Found,
        paths: Sequence[Path] = (),
        poll: Poll = no_poll,
        *,
        on_finding: Callable[[Finding], None] = lambda finding: None,
        on_check: Callable[[str], None] = lambda name: None,
        flags: str | Asked | None = None,
        server: str | None = None,
        served: float | None = None,
        rates: Sequence[float] = (),
        switches: Mapping[str, str] | None = None,
        stages: Sequence[str] | None = None,
        samples_why: str = "",
    ) -> CheckReport:
        """What is wrong with the checkpoint `found` and the samples in the files `paths`; most severe first.

        A checkpoint that cannot be opened is looked at all the same, as far as its files tell. `flags` are a server's
        launch line (or `@` and a file with one, or what its log told), `server` its name and version, `served` the
        accept length that it shows, `rates` the shares of rounds whose first, first two, ... drafts it accepts.
        `switches` are set on the wiring that was trained; those of the options where it is None. Raises WiringError for
        flags, a server or a switch that mean nothing.
        """
        from drafter.checks.registry import STAGES
        from drafter.checks.run import report_json, run_checks

        # not the line itself, which may hold keys: the log goes into bug reports
        by_hand = dict(self.options.switches if switches is None else switches)
        inputs = {"path": str(found.path), "files": len(paths), "server": server, "served": served}
        inputs |= {"rates": list(rates), "switches": by_hand}
        with Logged(self.log, "check", inputs) as logged:
            case = self._check_case(found, paths, poll, flags, server, samples_why)
            case.served, case.rates, case.switches = served, tuple(rates), by_hand
            asked = STAGES if stages is None else stages
            report = run_checks(case, on_finding, asked, _told(case, on_check))
            logged.result = report_json(report)
        for name, trace in report.crashes:
            self.log.write({"record": "error", "call": f"check {name}", "inputs": {}, "error": "crash", "trace": trace})
        return report

    def _check_case(
        self, found: Found, paths: Sequence[Path], poll: Poll, flags: str | Asked | None, server: str | None, why: str
    ) -> CheckCase:
        from drafter.checkpoint.target import open_target
        from drafter.checks.case import Case as CheckCase
        from drafter.checks.case import asked_of, open_samples

        asked, named = asked_of(flags, server)
        refusal: DrafterError | None = None
        try:
            current = self._now.checkpoint
            checkpoint = current if current and current.path == found.path else self.choose_checkpoint(found)
        except DrafterError as error:
            checkpoint, refusal = None, error
        self._find_tokens(paths[0] if paths else self._now.sample.path if self._now.sample else None)
        given, target_why = self.target if checkpoint else (None, "the checkpoint does not say which")
        if checkpoint is None and self.options.target is not None:
            given = open_target(self.options.target)
        samples, unread = open_samples(paths, self.sample_paths, self.open_sample if checkpoint else None, poll)
        family = self.family() if checkpoint else None
        return CheckCase(
            found,
            checkpoint,
            given,
            self.tokens,
            samples,
            poll,
            refusal=refusal,
            target_why=target_why,
            samples_why=why,
            tokens_why=self.tokens_why,
            asked=asked,
            server=named,
            family=family,
            target_layers=self.target_layers,
            load=lambda: self.load(poll),
            group_of=self.grouping.of if self.grouping.any else lambda path: "",
            depth=self.options.depth,
            mask=self.options.mask,
            unread=unread,
        )

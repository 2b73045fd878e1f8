"""A server's flags, its log, and the speed to expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.log import Logged
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.serving.effective import Effective
    from drafter.serving.expect import Expectation, Measured
    from drafter.serving.flags import Asked
    from drafter.serving.server_log import ServerLog
from drafter.session.comparing import Comparing
from drafter.session.core import Poll, no_poll

_LINES_A_POLL, _LONG_LINE = 64, 1 << 16  # of a server's log


class Serving(Comparing):
    def serving_flags(self, flags: str | Asked, server: str = "") -> tuple[Asked, Effective]:
        """What `server` makes of a launch line (or of flags that a log tells), with the checkpoint that is open."""
        from drafter.serving.effective import UNKNOWN, effective_json
        from drafter.serving.flags import flags_text, parse_flags
        from drafter.serving.serve import drafter_facts, effective

        # not the line itself: launch lines hold keys and tokens, and the log goes into bug reports
        with Logged(self.log, "serving_flags", {"server": server}) as logged:
            asked = parse_flags(flags_text(flags)) if isinstance(flags, str) else flags
            told = {name: value for name, value in asdict(asked).items() if value not in (None, "", (), False)}
            logged.inputs["flags"] = told
            checkpoint = self._now.checkpoint
            facts = drafter_facts(checkpoint) if checkpoint is not None else UNKNOWN
            made = effective(asked, server, facts)
            logged.result = effective_json(made)
        return asked, made

    def server_log(
        self, path: Path, server: str = "", draft_tokens: int | None = None, poll: Poll = no_poll
    ) -> ServerLog:
        """The accept length that a server's log tells; `server` and `draft_tokens` help where it is silent."""
        from drafter.serving.log_file import log_lines
        from drafter.serving.server import Server
        from drafter.serving.server_log import log_json, read_log

        def lines() -> Iterator[str]:
            for number, line in enumerate(log_lines(path)):
                if number % _LINES_A_POLL == 0 or len(line) >= _LONG_LINE:
                    poll()
                yield line

        inputs = {"path": str(path), "server": server, "draft_tokens": draft_tokens}
        with Logged(self.log, "server_log", inputs) as logged:
            found = read_log(lines(), server=Server.parse(server) if server else None, draft_tokens=draft_tokens)
            logged.result = {key: value for key, value in log_json(found).items() if key != "points"}
        return found

    def expect(
        self, base: float, points: Sequence[Measured], most: float | None = None, draft_cost: float | None = None
    ) -> Expectation:
        """The speed to expect of an accept length, from a speed without drafts and measured points."""
        from drafter.serving.expect import expectation, expectation_json

        inputs = {"base": base, "points": [asdict(point) for point in points], "most": most, "draft_cost": draft_cost}
        with Logged(self.log, "expect", inputs) as logged:
            found = expectation(base, points, most=most, draft_cost=draft_cost)
            logged.result = expectation_json(found, None, ())
        return found

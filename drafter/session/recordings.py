"""Many recordings at once: a folder surveyed, two recordings of the same tokens compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.log import Logged
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.sample.many.partners import Partners
    from drafter.sample.many.survey import Survey
    from drafter.sample.many.twins import Comparison
from drafter.session.checkpoints import Checkpoints
from drafter.session.core import Poll, no_poll


class Recordings(Checkpoints):
    def survey(
        self, paths: Sequence[Path], poll: Poll = no_poll, found: Callable[[Survey], None] = lambda survey: None
    ) -> Survey:
        """What the samples in the files `paths` hold, and which cannot be read; `found` sees it grow file by file."""
        from drafter.sample.many.survey import survey, survey_json

        with Logged(self.log, "survey", {"files": len(paths)}) as logged:
            result = survey(paths, self.recorded, poll, found)
            logged.result = survey_json(result, samples=False)
        return result

    def pair_recordings(self, ours: Sequence[Path], theirs: Sequence[Path], poll: Poll = no_poll) -> Partners:
        """Which samples in the files `ours` and `theirs` hold the same tokens."""
        from drafter.sample.many.partners import find_partners

        with Logged(self.log, "pair_recordings", {"ours": len(ours), "theirs": len(theirs)}) as logged:
            result = find_partners(ours, theirs, self.recorded, poll)
            logged.result = {"pairs": [[str(a), str(b)] for a, b in result.pairs]}
        return result

    def compare_recordings(self, ours: Path, theirs: Path, poll: Poll = no_poll) -> Comparison:
        """Two recordings of the same tokens, slot by slot; ours with its claims, and cut as the options say."""
        from drafter.sample.many.twins import compare_recordings, comparison_json

        with Logged(self.log, "compare_recordings", {"ours": str(ours), "theirs": str(theirs)}) as logged:
            sample = self._claimed(self.recorded(ours).first_rows(self.options.rows))
            result = compare_recordings(sample, self.recorded(theirs), poll)
            logged.result = comparison_json(result, pairs=False)
        return result

"""Facts about what is open, as `show` prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError
from drafter.files.find import Found
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.checkpoint.vocab_map import VocabMap
from drafter.session.core import Poll, no_poll
from drafter.session.samples import SampleList
from drafter.session.serving import Serving


class Facts(Serving):
    def show_json(self, picked: Found, listed: SampleList, poll: Poll = no_poll) -> dict[str, Any]:
        """`show --json` of what is open; without weights or samples, what there is."""
        from drafter.checkpoint.facts import facts_json, found_json, target_json, vocab_json
        from drafter.results import sample_json

        if not self.has_sample:
            self._find_tokens(None)
        vocab: VocabMap | None = None
        try:
            vocab, problem = self.vocab_map(), ""
        except DrafterError as error:
            problem = str(error) if self.checkpoint.has_weights else "no weights"
        configured, why = self.configured() if self.has_sample else (None, "no sample")
        trained = self.trained() if self.has_sample else None
        at = self._now.tokens_at
        return {
            "checkpoints": [found_json(f, f.path == picked.path) for f in self.last_found],
            "checkpoint": {**facts_json(self.checkpoint, vocab), "vocab_map": vocab_json(vocab, problem)},
            "target": target_json(*self.target),
            "tokenizer": {"path": str(at.path) if at and self.tokens else None, "why": self.tokens_why},
            "samples": {"count": len(listed.paths), "why": listed.why},
            "sample": sample_json(self.sample, self.probe(poll), facts=True) if self.has_sample else None,
            "configured": list(configured) if configured else None,
            "configured_why": why,
            "trained": list(trained) if trained else None,
        }

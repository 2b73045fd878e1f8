"""What the data of the current sample shows about its slots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drafter.errors import DrafterError
from drafter.options import Options as Options

if TYPE_CHECKING:
    from drafter.sample.probes.contradictions import Contradiction
    from drafter.sample.probes.last_state import Lens
    from drafter.sample.probes.probe import SlotProbe
    from drafter.sample.sample import Sample
from drafter.session.core import Poll, no_poll
from drafter.session.recordings import Recordings


class Probes(Recordings):
    def probe(self, poll: Poll = no_poll) -> list[SlotProbe]:
        """What the data of the current sample shows about its slots; reads them once."""
        if not self._now.probes:
            self._now.probes = self._probe(self.sample, poll)
        return self._now.probes

    def _probe(self, sample: Sample, poll: Poll) -> list[SlotProbe]:
        """What the data of `sample` shows; of the last one asked for it is kept."""
        from drafter.model.embedding import EmbeddingTable
        from drafter.model.sources import find_embedding
        from drafter.sample.probes.probe import probe_slots

        if self._now.probed is not None and self._now.probed[0] is sample:
            return self._now.probed[1]
        table: EmbeddingTable | None
        try:
            drafter = self._now.drafter
            table = drafter.embedding(self.wiring) if drafter else find_embedding(self.checkpoint, self._now.target)
        except DrafterError:
            table = None  # then nothing can be compared, and the probe says so

        def rows(ids: list[int]) -> Any:
            import torch

            assert table is not None
            return table.rows(torch.tensor(ids))

        probes = probe_slots(sample, rows if table is not None else None, self._lens(sample), poll)
        self._now.probed = sample, probes
        return probes

    def _lens(self, sample: Sample) -> Lens:
        """The target's final norm and head, as far as they are there; else the drafter's own head."""
        from drafter.sample.probes.last_state import lens_of

        checkpoint, target, own, ids = self._now.checkpoint, self._now.target, None, None
        if checkpoint is not None and (target is None or target.head is None):
            try:
                own, ids = checkpoint.tensors.get("lm_head.weight"), self.vocab_map().draft_ids
            except DrafterError:
                own = None  # a head whose tokens are not known names none
        return lens_of(target, sample.width, own, ids)

    def contradictions(self, poll: Poll = no_poll) -> list[Contradiction]:
        """Where what the current sample's slots are said to be and what their data shows cannot both be right."""
        from drafter.sample.probes.contradictions import contradictions

        return contradictions(self.sample, self.probe(poll))

"""Session: the one object that a front end drives, on one thread. It opens, chooses, steps, scores, exports, and keeps
the log of what it did.

torch is imported only when something is computed: finding and opening checkpoints, and listing samples, work without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.errors import DrafterError, FileError, PathError, SampleError, WiringError
from drafter.files.find import Found, find_checkpoints
from drafter.files.fingerprint import fingerprint
from drafter.locate import Located, locate_samples, locate_target, locate_tokenizer
from drafter.log import Logged, SessionLog
from drafter.options import Options as Options
from drafter.sample.claims import claim_slots
from drafter.sample.open import open_sample
from drafter.sample.tokens import TokenText, open_tokenizer, piece
from drafter.wiring import (
    SWITCHES,
    Ordering,
    Wiring,
    all_orderings,
    check_ordering,
    configured_ordering,
    parse_ordering,
    promising_orderings,
    view_wiring,
)

if TYPE_CHECKING:
    from torch import Tensor

    from drafter.checkpoint.statistics import TensorStatistics
    from drafter.checkpoint.target import TargetFolder
    from drafter.checkpoint.vocab_map import VocabMap
    from drafter.drafting.context import SampleRun
    from drafter.drafting.readout import RowReadout
    from drafter.drafting.verifier import VerifierChoice
    from drafter.model.device import Placement
    from drafter.model.drafter import Eagle3Drafter
    from drafter.results import ScoreResult, StepResult
    from drafter.sample.probe import SlotProbe
    from drafter.sample.sample import Sample
    from drafter.scoring.counts import OrderingCounts

Poll = Callable[[], None]
TOP = 5  # predictions of a step


def no_poll() -> None:
    """For callers that cannot be cancelled."""


@dataclass(frozen=True)
class SampleList:
    paths: Sequence[Path]
    why: str


@dataclass
class _Open:
    """What is open now; choosing another checkpoint or sample drops what depended on the old one."""

    checkpoint: Checkpoint | None = None
    target: TargetFolder | None = None
    target_why: str = ""
    drafter: Eagle3Drafter | None = None
    placement: Placement | None = None
    sample: Sample | None = None
    run: SampleRun | None = None
    probes: list[SlotProbe] = field(default_factory=list)
    drafted: dict[Ordering, Tensor] = field(default_factory=dict)  # step-0 draft ids [R] of orderings scored
    tokens: TokenText | None = None
    tokens_at: Located | None = None
    tokens_problem: str = ""


class Session:
    """See the module. Every method that a user can ask for raises DrafterError with the one line to show."""

    def __init__(self, options: Options, log: SessionLog | None = None) -> None:
        self.options = options
        self.log = log if log is not None else SessionLog(None, [])
        self.last_found: list[Found] = []
        self._now = _Open()
        self._switches = dict(options.switches)

    # ------------------------------------------------------------------ checkpoints

    def find(self, poll: Poll = no_poll) -> list[Found]:
        """Checkpoints at or below the path."""
        with Logged(self.log, "find", {"path": str(self.options.path)}) as logged:
            self.last_found = found = find_checkpoints(self.options.path, poll)
            logged.result = [{"name": f.name, "links": list(f.links), "state": f.state} for f in found]
        return found

    def pick(self, found: Sequence[Found]) -> Found:
        """The checkpoint to begin with: what `checkpoint_best` leads to, else the last one that has weights."""
        whole = [f for f in found if not f.state] or list(found)
        if not whole:
            raise PathError("no checkpoint", where=self.options.path)
        best = [f for f in whole if any("best" in link for link in f.links)]
        return best[0] if best else max(whole, key=lambda f: -1 if f.epoch is None else f.epoch)

    @staticmethod
    def pick_why(picked: Found) -> str:
        """The reason for which `pick` took `picked` among several."""
        best = [link for link in picked.links if "best" in link]
        if best:
            return f"to which {best[0]} leads"
        return "the last with weights" if not picked.state else f"the last, all have {picked.state}"

    def choose_checkpoint(self, found: Found) -> Checkpoint:
        """Open `found` by its headers and make it current; the target is looked for, the sample stays chosen."""
        inputs = {"path": str(found.path)}
        with Logged(self.log, "choose_checkpoint", inputs) as logged:
            from drafter.checkpoint.facts import facts_json

            checkpoint = open_checkpoint(found)
            target, why = locate_target(self.options.target, checkpoint)
            old = self._now
            self._now = _Open(
                checkpoint,
                target,
                why,
                tokens=old.tokens,
                tokens_at=old.tokens_at,
                tokens_problem=old.tokens_problem,
            )
            if old.sample is not None:
                self._now.sample = self._claimed(old.sample)
            facts = facts_json(checkpoint, None)
            facts["fingerprints"] = {p.name: fingerprint(p) for p in found.weights}
            facts["target"] = {"path": str(target.path) if target else None, "why": why}
            logged.result = facts
        return checkpoint

    @property
    def checkpoint(self) -> Checkpoint:
        if self._now.checkpoint is None:
            raise PathError("no checkpoint chosen", where=self.options.path)
        return self._now.checkpoint

    @property
    def target(self) -> tuple[TargetFolder | None, str]:
        return self._now.target, self._now.target_why

    def statistics(self, name: str, poll: Poll = no_poll) -> TensorStatistics:
        """Statistics and histogram of one tensor of the checkpoint, by canonical name."""
        from drafter.checkpoint.statistics import statistics

        stored = self.checkpoint.tensors.get(name)
        if stored is None:
            raise WiringError(f"no tensor {name!r}", where=self.checkpoint.path)
        with Logged(self.log, "statistics", {"tensor": name}) as logged:
            found = statistics(stored, poll)
            logged.result = {k: getattr(found, k) for k in ("count", "nan", "inf", "zero", "mean", "std", "norm")}
        return found

    @property
    def vocab_warning(self) -> str:
        return self._now.drafter.vocab(self.wiring).warning if self._now.drafter else ""

    def vocab_map(self) -> VocabMap:
        """d2t in the reading that the data supports."""
        from drafter.model.sources import load_vocab_map

        return self._now.drafter.vocab(self.wiring) if self._now.drafter else load_vocab_map(self.checkpoint)

    # ------------------------------------------------------------------ samples

    def list_samples(self, poll: Poll = no_poll) -> SampleList:
        """Sample files, unopened, and where they were found."""
        paths, why = locate_samples(self.options.samples, self.options.path, poll)
        self.log.call("list_samples", {"samples": [str(p) for p in self.options.samples]}, len(paths))
        return SampleList(paths, why)

    def choose_sample(self, path: Path) -> Sample:
        """Open a sample (its states unread), with its slots' claims, and make it current."""
        with Logged(self.log, "choose_sample", {"path": str(path), "slots": self.options.slots}) as logged:
            sample = self.open_sample(path)
            self._check_fits(sample)
            self._find_tokens(path)
            self._now.sample, self._now.run, self._now.probes, self._now.drafted = sample, None, [], {}
            logged.result = {"format": sample.format, "tokens": sample.length, "fingerprint": fingerprint(sample.file)}
        return sample

    def _check_fits(self, sample: Sample) -> None:
        """Refuse, before anything is switched, a sample that the open drafter or the asked orderings cannot take."""
        checkpoint = self._now.checkpoint
        if checkpoint is None:
            return
        width, inputs = checkpoint.run_config.target_hidden_size, checkpoint.fc_inputs
        if sample.width != width:
            raise SampleError(
                f"recorded states are {sample.width} wide",
                expected=f"{width}, the target width of the drafter",
                where=sample.path,
            )
        if len(sample.slots) < inputs:
            raise SampleError(
                f"{len(sample.slots)} recorded states", expected=f"at least {inputs}, as fc takes", where=sample.path
            )
        for name in self.options.orderings:
            if name != "all":
                check_ordering(parse_ordering(name), len(sample.slots), inputs)

    def open_sample(self, path: Path) -> Sample:
        """The sample in `path` with its claims, not made current."""
        checkpoint = self._now.checkpoint
        width = checkpoint.run_config.target_hidden_size if checkpoint is not None else None
        return self._claimed(open_sample(path, width).first_rows(self.options.rows))

    def _claimed(self, sample: Sample) -> Sample:
        """`sample` with what its slots are said to be, as far as the checkpoint and target that are open know."""
        unclaimed = sample.with_claims([None] * len(sample.slots))
        layers = self._now.target.num_layers if self._now.target else None
        return claim_slots(unclaimed, self.options.slots, self._trained_depths(), layers)

    @property
    def sample(self) -> Sample:
        if self._now.sample is None:
            raise SampleError("no sample chosen", hint="name one with --samples")
        return self._now.sample

    def counted(self) -> list[bool]:
        """Whether each row of the current sample counts at step 0 in the mask mode of the options."""
        from drafter.scoring.counts import row_mask

        counts: list[bool] = row_mask(self.sample.supervised, self.options.mask, self.sample.length - 1).tolist()
        return counts

    @property
    def has_sample(self) -> bool:
        return self._now.sample is not None

    def probe(self, poll: Poll = no_poll) -> list[SlotProbe]:
        """What the data of the current sample shows about its slots; reads them once."""
        if not self._now.probes:
            self._now.probes = self._probe(self.sample, poll)
        return self._now.probes

    def _probe(self, sample: Sample, poll: Poll) -> list[SlotProbe]:
        from drafter.model.embedding import EmbeddingTable
        from drafter.model.sources import find_embedding
        from drafter.sample.probe import probe_slot

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

        return [probe_slot(sample, slot, rows if table is not None else None, poll) for slot in sample.slots]

    # ------------------------------------------------------------------ text

    def piece(self, token: int) -> str:
        return piece(self._now.tokens, token)

    @property
    def tokens(self) -> TokenText | None:
        return self._now.tokens

    @property
    def tokens_why(self) -> str:
        at = self._now.tokens_at
        if self._now.tokens_problem:
            return f"none: {self._now.tokens_problem}"
        return f"{at.path} ({at.why})" if at else "no tokenizer found: ids are shown (--tokenizer)"

    def _find_tokens(self, sample: Path | None) -> None:
        located = locate_tokenizer(self.options.tokenizer, self._now.checkpoint, sample, self._now.target)
        if located == self._now.tokens_at:
            return
        self._now.tokens, self._now.tokens_at, self._now.tokens_problem = None, located, ""
        try:
            self._now.tokens = open_tokenizer(located.path) if located else None
        except DrafterError as error:
            if self.options.tokenizer is not None:
                self._now.tokens_at = None  # so that asking again refuses again
                raise
            self._now.tokens_problem = str(error)  # nobody asked for this file: ids do

    # ------------------------------------------------------------------ wiring

    def _trained_depths(self) -> tuple[int, ...] | None:
        """The depths that training itself wrote down: a speculators config, beside or as the config."""
        checkpoint = self._now.checkpoint
        if checkpoint is None:
            return None
        if checkpoint.trained_config is not None:
            return checkpoint.trained_config.aux_depths
        return checkpoint.config.aux_depths if checkpoint.config.dialect == "speculators" else None

    @property
    def trained_wiring(self) -> Wiring:
        """The wiring of the view, before any switch is set."""
        return view_wiring(self.options.view, self.checkpoint.run_config)

    @property
    def wiring(self) -> Wiring:
        """The wiring in force: the view's, with the switches that are set."""
        wiring = self.trained_wiring
        for name, value in self._switches.items():
            wiring = wiring.switched(name, value)
        return wiring

    def set_switch(self, name: str, value: str | None) -> Wiring:
        """Set one switch of the wiring, or give it back to the view with None. Raises WiringError."""
        with Logged(self.log, "set_switch", {"switch": name, "value": value}) as logged:
            if value is not None:
                self.trained_wiring.switched(name, value)
                self._switches[name] = value
            else:
                self._switches.pop(name, None)
            self._now.drafted = {}
            logged.result = self.switched()
        return self.wiring

    def switched(self) -> dict[str, str]:
        """The switches that differ from the view's own wiring, with their values."""
        trained, wiring = self.trained_wiring, self.wiring
        return {name: wiring.value(name) for name in SWITCHES if wiring.value(name) != trained.value(name)}

    def try_switch(
        self, ordering: Ordering, name: str, value: str, depth: int | None = None, poll: Poll = no_poll
    ) -> OrderingCounts:
        """Score `ordering` on the current sample as if one more switch were set; nothing is changed by it."""
        inputs = {"ordering": list(ordering), "switch": name, "value": value}
        with Logged(self.log, "try_switch", inputs) as logged:
            counts = self.score_wiring(ordering, self.wiring.switched(name, value), depth, poll)
            accuracy = counts.accuracy
            logged.result = {"hits": accuracy.hits, "total": accuracy.total, "length": counts.lengths.mean}
        return counts

    def score_wiring(
        self, ordering: Ordering, wiring: Wiring, depth: int | None = None, poll: Poll = no_poll
    ) -> OrderingCounts:
        """Score `ordering` on the current sample under any wiring; `next_token` only."""
        from drafter.drafting.chains import draft_ids
        from drafter.scoring.counts import count, rows_needed
        from drafter.scoring.sweep import truths_of

        run = self.run(poll)
        depth = self.options.depth if depth is None else depth
        truths = truths_of(run, None, wiring)
        rows = rows_needed(truths.mask, self.options.mask, depth)
        return count(draft_ids(run, ordering, wiring, depth, rows, poll=poll), truths, self.options.mask)

    def configured(self) -> tuple[Ordering | None, str]:
        """What the config's layer ids select among the current sample's slots, or None, with the reason."""
        return configured_ordering(self.checkpoint.config.aux_depths, self.sample.slots, self.checkpoint.fc_inputs)

    def trained(self) -> Ordering | None:
        """What the training's own config selects, where there is one."""
        depths = self._trained_depths()
        if depths is None:
            return None
        return configured_ordering(depths, self.sample.slots, self.checkpoint.fc_inputs)[0]

    def orderings(self, asked: Iterable[str] | None = None) -> list[Ordering]:
        """The orderings that the options (or `asked`) name, or every one for `all`.

        Where nothing is named: every one, of a recording of many layers the promising ones (`orderings_note`).
        """
        slots, inputs = len(self.sample.slots), self.checkpoint.fc_inputs
        names = list(self.options.orderings if asked is None else asked)
        if not names:
            return self._promising()[0]
        if "all" in names:
            return all_orderings(slots, inputs)
        return list(dict.fromkeys(check_ordering(parse_ordering(name), slots, inputs) for name in names))

    @property
    def orderings_note(self) -> str:
        """Which orderings are scored unasked, where they are not all."""
        return self._promising()[1]

    def _promising(self) -> tuple[list[Ordering], str]:
        slots, inputs = len(self.sample.slots), self.checkpoint.fc_inputs
        asked = [parse_ordering(name) for name in self.options.orderings if name != "all"]
        near = [*asked, *(o for o in (self.trained(), self.configured()[0]) if o is not None)]
        return promising_orderings(slots, inputs, near)

    @property
    def asked_ordering(self) -> bool:
        """Whether the options name one ordering to begin with."""
        return any(name != "all" for name in self.options.orderings)

    def first_ordering(self) -> tuple[Ordering, str]:
        """The ordering to begin with, and why: the one asked for, the trained, the configured, else the first slots."""
        asked = [name for name in self.options.orderings if name != "all"]
        if asked:
            return self.orderings(asked)[0], "as asked"
        trained = self.trained()
        if trained is not None:
            return trained, "trained, by the training's config"
        configured, _ = self.configured()
        if configured is not None:
            return configured, "configured"
        slots = tuple(range(self.checkpoint.fc_inputs))
        return slots, "the first slots; no config says which"

    # ------------------------------------------------------------------ the drafter at work

    def load(self, poll: Poll = no_poll) -> Eagle3Drafter:
        """The current checkpoint's drafter, its weights read when first asked for."""
        if self._now.drafter is None:
            from drafter.model.device import choose
            from drafter.model.weights import build_drafter

            checkpoint, options = self.checkpoint, self.options
            with Logged(self.log, "load", {"device": options.device, "dtype": options.dtype}) as logged:
                placement = choose(options.device, options.dtype, checkpoint.dtype, checkpoint.weight_bytes)
                drafter = build_drafter(checkpoint, self._now.target, placement, poll)
                logged.result = {
                    **self._placement_json(placement),
                    "vocab_map": drafter.vocab(self.wiring).reading,
                    "embedding": drafter.embedding(self.wiring).source,
                }
            self._now.placement, self._now.drafter = placement, drafter
        return self._now.drafter

    @property
    def placement(self) -> Placement | None:
        return self._now.placement

    @staticmethod
    def _placement_json(placement: Placement) -> dict[str, str]:
        return {"device": str(placement.device), "dtype": placement.dtype_name, "reason": placement.reason}

    def run(self, poll: Poll = no_poll) -> SampleRun:
        """The current sample on the current drafter."""
        if self._now.run is None:
            from drafter.drafting.context import SampleRun

            self._now.run = SampleRun(self.load(poll), self.sample)
        return self._now.run

    def rows(self, ordering: Ordering, rows: list[int], poll: Poll = no_poll) -> list[RowReadout]:
        """Step 0 of some rows with the best prediction each: a screen's worth of the token table."""
        from drafter.drafting.readout import read_rows

        found = read_rows(self.run(poll), ordering, self.wiring, rows, 1, poll)
        shown = [[r.row, r.predictions[0].id, r.truth_rank] for r in found]
        span = [rows[0], rows[-1]] if rows else []
        self.log.call("rows", {"ordering": list(ordering), "rows": span}, shown, keep=False)
        return found

    def at_row(self, orderings: Sequence[Ordering], row: int, poll: Poll = no_poll) -> dict[Ordering, int]:
        """The token predicted at one row under each of several orderings; what a sweep has drafted is not redone."""
        from drafter.drafting.readout import read_rows

        run, wiring, found = self.run(poll), self.wiring, {}
        for ordering in orderings:
            drafted = self._now.drafted.get(ordering)
            if drafted is not None and drafted[row] >= 0:
                found[ordering] = int(run.drafter.vocab(wiring).target_ids[drafted[row]])
            else:
                poll()
                found[ordering] = read_rows(run, ordering, wiring, [row], 1, poll)[0].predictions[0].id
        return found

    def check_token(self, at: int) -> None:
        """Raises WiringError for a token that no row of the current sample predicts."""
        last = self.sample.length
        if not 2 <= at <= last:
            raise WiringError(f"token {at}", expected=f"2..{last}: the first two have no row", where=self.sample.path)

    def step(self, at: int, ordering: Ordering, poll: Poll = no_poll, *, top: int = TOP) -> StepResult:
        """What is predicted for token `at` (row at - 2), and the chain of drafts from there.

        Raises WiringError for a token that no row predicts.
        """
        from drafter.drafting.readout import read_chain, read_rows
        from drafter.results import StepResult

        self.check_token(at)
        run, wiring, depth = self.run(poll), self.wiring, self.options.depth
        inputs = {
            "checkpoint": str(self.checkpoint.path),
            "sample": str(self.sample.path),
            "at": at,
            "ordering": list(ordering),
            "depth": depth,
            "view": self.options.view,
        }
        with Logged(self.log, "step", inputs) as logged:
            readout = read_rows(run, ordering, wiring, [at - 2], top, poll)[0]
            chain = read_chain(run, ordering, wiring, at - 2, depth, poll)
            result = StepResult(at, ordering, self.options.view, readout, tuple(chain))
            logged.result = self.step_json(result)
        return result

    def step_json(self, result: StepResult) -> dict[str, Any]:
        """`step --json` of a result of this session."""
        from drafter.results import step_ids, step_json

        return {**step_json(result, {i: self.piece(i) for i in step_ids(result)}), "switched": self.switched()}

    # ------------------------------------------------------------------ scores

    def score(
        self,
        paths: Sequence[Path],
        orderings: Sequence[Ordering] | None = None,
        on_progress: Callable[[ScoreResult], None] = lambda result: None,
        poll: Poll = no_poll,
        *,
        depth: int | None = None,
    ) -> ScoreResult:
        """Score `orderings` on the samples in `paths`, pooled; orderings and `depth` are those of the options if None.

        `on_progress` is given the same growing result after every (sample, ordering).
        """
        from drafter.results import ScoreResult, sample_json
        from drafter.scoring.sweep import score_sample, truths_of

        options = self.options
        if not self.has_sample:
            self.choose_sample(paths[0])
        chosen = list(orderings) if orderings is not None else self.orderings()
        depth = options.depth if depth is None else depth
        configured, why = self.configured()
        result = ScoreResult(
            depth, options.mask, options.view, configured, why, self.trained(), len(paths) * len(chosen)
        )
        inputs = {
            "paths": [str(p) for p in paths],
            "orderings": [list(o) for o in chosen],
            "depth": depth,
            "mask": options.mask,
            "view": options.view,
        }
        with Logged(self.log, "score", inputs) as logged:
            result.warnings = self.load(poll).warnings
            for path in paths[1:]:  # a broken file is better refused before the work than after it
                poll()
                self._check_fits(self.open_sample(path))
            for path in paths:
                run = self._run_for(path, len(self.sample.slots), poll)
                probes = self.probe(poll) if run is self._now.run else self._probe(run.sample, poll)
                result.samples.append(sample_json(run.sample, probes))
                choice = self._verifier(run.sample, result, poll)

                def found(ordering: Ordering, counts: OrderingCounts, ids: Tensor, run: SampleRun = run) -> None:
                    if run is self._now.run:
                        self._now.drafted[ordering] = ids[0]
                    old = result.scores.get(ordering)
                    result.scores[ordering] = counts if old is None else old + counts
                    result.done += 1
                    on_progress(result)

                score_sample(
                    run, truths_of(run, choice, self.wiring), chosen, self.wiring, depth, options.mask, found, poll
                )
            logged.result = self.score_json(result)
        return result

    def _run_for(self, path: Path, slots: int, poll: Poll) -> SampleRun:
        from drafter.drafting.context import SampleRun

        if self._now.sample is not None and self._now.sample.path == path:
            return self.run(poll)
        sample = self.open_sample(path)
        if len(sample.slots) != slots:
            raise SampleError(
                f"{len(sample.slots)} recorded states", expected=f"{slots}, as in the first sample", where=path
            )
        return SampleRun(self.load(poll), sample)

    def _verifier(self, sample: Sample, result: ScoreResult, poll: Poll) -> VerifierChoice | None:
        from drafter.drafting.verifier import verifier_choice, why_not

        reason = why_not(sample, self._now.target)
        if reason is not None:
            for metric in ("verifier_strict", "verifier_draft_vocab", "in_vocab"):
                result.reasons[metric] = reason
            return None
        drafter, target = self.load(poll), self._now.target
        assert target is not None
        return verifier_choice(sample, target, drafter.vocab(self.wiring), drafter.placement, poll)

    def score_json(self, result: ScoreResult) -> dict[str, Any]:
        """`score --json` of a result of this session."""
        from drafter.results import score_json

        assert self._now.placement is not None
        return {
            **score_json(self.checkpoint, self._placement_json(self._now.placement), result),
            "switched": self.switched(),
        }

    # ------------------------------------------------------------------ facts

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
            "sample": sample_json(self.sample, self.probe(poll)) if self.has_sample else None,
            "configured": list(configured) if configured else None,
            "configured_why": why,
            "trained": list(trained) if trained else None,
        }

    # ------------------------------------------------------------------ leaving

    def export(self, folder: Path) -> list[Path]:
        """Write the session as Markdown and JSON into `folder`, for a bug report; returns the two paths."""
        from drafter.export import export

        try:
            return export(self.log.records, folder)
        except FileError:
            # a state folder that cannot be written must not cost the report
            return export(self.log.records, Path(tempfile.gettempdir()) / "eagle3-tui")

    def note_failure(self, name: str, error: Exception, trace: str) -> None:
        """Keep an unexpected failure in the log, with its traceback, for the bug report."""
        self.log.write({"record": "error", "call": name, "inputs": {}, "error": repr(error), "trace": trace})

    def close(self) -> None:
        self.log.close()

"""Session: the one object that a front end drives, on one thread. It opens, chooses, steps, scores, exports, and keeps
the log of what it did.

torch is imported only when something is computed: finding and opening checkpoints, and listing samples, work without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drafter.checkpoint.checkpoint import Checkpoint, open_checkpoint
from drafter.errors import DrafterError, FileError, PathError, SampleError, WiringError
from drafter.files.find import Found, find_checkpoints
from drafter.files.fingerprint import fingerprint
from drafter.locate import locate_samples, locate_target
from drafter.locate_tokenizer import Located, locate_tokenizer
from drafter.log import Logged, SessionLog
from drafter.options import Options as Options
from drafter.sample.claims import claim_slots
from drafter.sample.folder import SamplePaths
from drafter.sample.open import open_sample
from drafter.sample.text.supervised import ROLES, choose_mask, mask_facts
from drafter.sample.text.tokens import TokenText, open_tokenizer, piece
from drafter.sample.vocabulary import check_vocabulary
from drafter.scoring.groups import Grouping, parse_groups
from drafter.serving.families import Family, family_of
from drafter.serving.view_case import Case
from drafter.serving.views import (
    TRAINED,
    WORTH,
    ServedView,
    graph_ordering,
    ordering_difference,
    ordering_of,
    parse_view,
    served_view,
)
from drafter.wiring import (
    SWITCHES,
    Ordering,
    Wiring,
    all_orderings,
    check_ordering,
    configured_ordering,
    parse_ordering,
    promising_orderings,
)

if TYPE_CHECKING:
    from torch import Tensor

    from drafter.checkpoint.statistics import TensorStatistics
    from drafter.checkpoint.target import TargetFolder
    from drafter.checkpoint.vocab_map import VocabMap
    from drafter.checkpoint_compare.compare import Comparison as CheckpointComparison
    from drafter.checkpoint_compare.epochs import Run as EpochRun
    from drafter.checkpoint_compare.outcomes import Outcomes, Paired
    from drafter.checks.case import Case as CheckCase
    from drafter.checks.finding import Finding
    from drafter.checks.run import Report as CheckReport
    from drafter.drafting.context import SampleRun
    from drafter.drafting.readout import RowReadout
    from drafter.drafting.rounds import Round
    from drafter.drafting.tree import Tree
    from drafter.drafting.verifier import VerifierChoice
    from drafter.model.device import Placement
    from drafter.model.drafter import Eagle3Drafter
    from drafter.pooling import Bench
    from drafter.results import ScoreResult, StepResult
    from drafter.sample.many.partners import Partners
    from drafter.sample.many.survey import Survey
    from drafter.sample.many.twins import Comparison
    from drafter.sample.probes.contradictions import Contradiction
    from drafter.sample.probes.last_state import Lens
    from drafter.sample.probes.probe import SlotProbe
    from drafter.sample.sample import Sample
    from drafter.scoring.breaks import Breaks
    from drafter.scoring.chain_report import ChainReport
    from drafter.scoring.counts import OrderingCounts, Truths
    from drafter.scoring.tree_counts import TreeCounts
    from drafter.serving.effective import Effective
    from drafter.serving.expect import Expectation, Measured
    from drafter.serving.flags import Asked
    from drafter.serving.server_log import ServerLog
    from drafter.serving.view_scores import ViewPlan
    from drafter.views import ViewsResult

Poll = Callable[[], None]
TOP = 5  # predictions of a step
_LINES_A_POLL, _LONG_LINE = 64, 1 << 16  # of a server's log
TRIED = 256  # files that are tried for a first sample: a folder of other things must not be read to its end


def no_poll() -> None:
    """For callers that cannot be cancelled."""


@dataclass(frozen=True)
class SampleList:
    paths: SamplePaths
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
    probed: tuple[Sample, list[SlotProbe]] | None = None  # of the last sample that was probed, current or not
    drafted: dict[Ordering, Tensor] = field(default_factory=dict)  # step-0 draft ids [R] of orderings scored
    tokens: TokenText | None = None
    tokens_at: Located | None = None
    tokens_problem: str = ""
    served: dict[str, ServedView] = field(default_factory=dict)  # by the name that was asked for


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

    def sample_paths(self, path: Path) -> list[Path]:
        """The samples in one listed file by name, of which most hold one; only headers are read."""
        from drafter.sample.many.parts import sample_paths

        if self.options.keys is not None:  # what is described is one sample
            return [path]
        checkpoint = self._now.checkpoint
        return sample_paths(path, checkpoint.run_config.target_hidden_size if checkpoint is not None else None)

    def choose_first(self, paths: Sequence[Path], poll: Poll = no_poll) -> Sample:
        """Make the first sample in the files `paths` current that opens and fits, wherever it stands.

        Raises the refusal of one that the options name by itself, of an option, or the first of all if none can be had
        among the first TRIED files.
        """
        first: DrafterError | None = None
        for name in (name for path in paths[:TRIED] for name in self.sample_paths(path)):
            poll()
            error = self.misfit(name)
            if error is None or isinstance(error, WiringError) or name in self.options.samples:
                return self.choose_sample(name)  # which refuses, and logs, what is wrong
            first = first or error
        first = first or PathError("no samples", where=self.options.path)
        self.log.failed("choose_first", {"paths": len(paths)}, first)
        raise first

    def misfit(self, path: Path) -> DrafterError | None:
        """Why the sample cannot be made current, as far as its headers and ids say."""
        try:
            self._check_fits(self.open_sample(path))
        except DrafterError as error:
            return error
        return None

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
        sample = open_sample(path, width, self.options.keys)
        sample = sample.first_rows(self.options.rows)
        return self._claimed(choose_mask(sample, self.options.supervised, self._tokens_for_roles(path)))

    def _claimed(self, sample: Sample) -> Sample:
        """`sample` with what its slots are said to be, as far as the checkpoint and target that are open know."""
        unclaimed = sample.with_claims([None] * len(sample.slots))
        layers = self._now.target.num_layers if self._now.target else None
        claimed = claim_slots(unclaimed, self.options.slots, self._trained_depths(), layers)
        checkpoint = self._now.checkpoint
        return check_vocabulary(claimed, checkpoint.run_config.vocab_size) if checkpoint is not None else claimed

    def recorded(self, path: Path) -> Sample:
        """The sample in `path` as it was recorded: whole, with its own mask, without claims."""
        checkpoint = self._now.checkpoint
        width = checkpoint.run_config.target_hidden_size if checkpoint is not None else None
        return open_sample(path, width, self.options.keys)

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

    def set_mask(self, mode: str) -> None:
        """Which rows count from now on. Raises WiringError for a mode that does not exist."""
        with Logged(self.log, "set_mask", {"mask": mode}):
            self.options = replace(self.options, mask=mode)

    def set_supervised(self, how: str) -> None:
        """Where loss masks come from, from now on; the current sample is opened again with it.

        Raises DrafterError, and leaves all as it is, where the sample has no such mask.
        """
        with Logged(self.log, "set_supervised", {"supervised": how}):
            before, self.options = self.options, replace(self.options, supervised=how)
            try:
                self.choose_sample(self.sample.path)
            except DrafterError:
                self.options = before
                raise

    @property
    def has_sample(self) -> bool:
        return self._now.sample is not None

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

    def mask_facts(self) -> list[str]:
        """What the loss mask of the current sample is, a line each."""
        return mask_facts(self.sample, self._now.tokens)

    def _tokens_for_roles(self, sample: Path) -> TokenText | None:
        """The tokenizer of a sample that is not current yet, if its loss mask depends on one."""
        if self.options.supervised != ROLES:
            return None
        located = locate_tokenizer(self.options.tokenizer, self._now.checkpoint, sample, self._now.target)
        if self._now.tokens is not None and located == self._now.tokens_at:
            return self._now.tokens
        return open_tokenizer(located.path) if located else None

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

    def served(self, view: str | None = None) -> ServedView | None:
        """What a server makes of the current checkpoint, by the options' view if None; None for `trained`."""
        text = self.options.view if view is None else view
        server = parse_view(text)
        if server is None:
            return None
        if text not in self._now.served:
            self._now.served[text] = served_view(self._case(text))
        return self._now.served[text]

    def _case(self, view: str) -> Case:
        from drafter.fix.configs import configured_table
        from drafter.model.sources import load_vocab_map

        server, checkpoint = parse_view(view), self.checkpoint
        assert server is not None
        try:
            reading = load_vocab_map(checkpoint).reading
        except DrafterError:
            reading = ""  # loading refuses it, with the reason
        table, target = configured_table(checkpoint), self._now.target
        return Case(checkpoint, table, server, self.family(), self.target_layers, target, reading)

    def family(self, given: str | None = None) -> Family:
        """The target's family: as given, from its own config, or by what the checkpoint's configs say of it."""
        from drafter.checkpoint.config import Fields
        from drafter.fix.configs import configured_table, verifier_architectures

        asked = given if given is not None else self.options.family
        if asked is not None:
            return family_of(asked)
        target = self._now.target
        if target is not None and target.model_type:
            return family_of(target.model_type, verifier_architectures(self.checkpoint))
        said = Fields(configured_table(self.checkpoint), "config.json").raw("target_model_type")
        return family_of(str(said) if isinstance(said, str) else "", verifier_architectures(self.checkpoint))

    @property
    def target_layers(self) -> int | None:
        """How many layers the target has: as the options say, else by its config; None where nobody says."""
        if self.options.layers is not None:
            return self.options.layers
        return self._now.target.num_layers if self._now.target else None

    @property
    def view_name(self) -> str:
        """The view with its version, whether it was named or not."""
        server = parse_view(self.options.view)
        return TRAINED if server is None else str(server)

    def view_said(self) -> list[str]:
        """What has to be said of the view in force: assumptions, and why it would not run; nothing for `trained`."""
        served = self.served()
        if served is None:
            return []
        return [f"{served.name}: {said}" for said in (served.refused, *served.notes) if said]

    @property
    def trained_wiring(self) -> Wiring:
        """The wiring of the view, before any switch is set."""
        served = self.served()
        if served is None:
            return Wiring.trained(self.checkpoint.run_config)
        if served.refused:
            raise WiringError(
                f"the view {served.name} of a checkpoint that it would not load: {served.refused}",
                where=self.checkpoint.path,
                hint="--view trained runs it as training did; `views` shows every version",
            )
        return served.wiring

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
        """What the config's layer ids select among the current sample's slots, or None, with the reason.

        Under a served view by that server's own rule, else by the convention of whoever wrote the config.
        """
        served = self.served()
        if served is not None:
            return ordering_of(served, self.sample.slots, self.checkpoint.fc_inputs, self.target_layers)
        return self._configured_by_dialect()

    def _configured_by_dialect(self) -> tuple[Ordering | None, str]:
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
        """The ordering to begin with, and why: the one asked for, what a served view captures, the trained, the
        configured, else the first slots."""
        asked = [name for name in self.options.orderings if name != "all"]
        if asked:
            return self.orderings(asked)[0], "as asked"
        if self.served() is not None and self.configured()[0] is not None:
            ordering, why = self.configured()
            assert ordering is not None
            return ordering, why
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
            "view": self.view_name,
        }
        with Logged(self.log, "step", inputs) as logged:
            readout = read_rows(run, ordering, wiring, [at - 2], top, poll)[0]
            chain = read_chain(run, ordering, wiring, at - 2, depth, poll)
            result = StepResult(at, ordering, self.view_name, readout, tuple(chain))
            logged.result = self.step_json(result)
        return result

    def step_json(self, result: StepResult) -> dict[str, Any]:
        """`step --json` of a result of this session."""
        from drafter.results import step_ids, step_json

        return {**step_json(result, {i: self.piece(i) for i in step_ids(result)}), "switched": self.switched()}

    def tree(
        self,
        at: int,
        ordering: Ordering,
        rule: str,
        steps: int,
        topk: int,
        tokens: int | None = None,
        poll: Poll = no_poll,
    ) -> Tree:
        """The tree of drafts whose first level stands for token `at` (row at - 2), held against the sample's tokens.

        Raises WiringError for a token that no row predicts, a search that cannot be meant, a drafter without trees.
        """
        from drafter.drafting.tree import tree_json, tree_plan
        from drafter.drafting.tree_eagle2 import read_tree

        with Logged(self.log, "tree", {"at": at, **self._tree_inputs(ordering, rule, steps, topk, tokens)}) as logged:
            self.check_token(at)
            plan = tree_plan(rule, steps, topk, tokens)
            result = read_tree(self.run(poll), ordering, self.wiring, at - 2, plan, poll)
            logged.result = tree_json(result)
        return result

    def tree_lengths(
        self,
        ordering: Ordering,
        rule: str,
        steps: int,
        topk: int,
        tokens: int | None = None,
        rows: int | None = None,
        on_progress: Callable[[TreeCounts], None] = lambda counts: None,
        poll: Poll = no_poll,
    ) -> TreeCounts:
        """Accept lengths of the tree search on the current sample, beside the chain's: over all rows that count, or at
        most `rows` of them spread evenly; `on_progress` sees them grow. Raises WiringError as `tree` does.
        """
        from drafter.drafting.tree import tree_plan
        from drafter.scoring.sweep import truths_of
        from drafter.scoring.tree_counts import count_trees, tree_counts_json

        mode = self.options.mask
        inputs = {**self._tree_inputs(ordering, rule, steps, topk, tokens), "rows": rows, "mask": mode}
        with Logged(self.log, "tree_lengths", inputs) as logged:
            plan = tree_plan(rule, steps, topk, tokens)
            run, wiring = self.run(poll), self.wiring
            truths = truths_of(run, None, wiring)
            counts = count_trees(run, ordering, wiring, plan, truths, mode, rows, on_progress, poll)
            logged.result = tree_counts_json(counts)
        return counts

    def _tree_inputs(self, ordering: Ordering, rule: str, steps: int, topk: int, tokens: int | None) -> dict[str, Any]:
        asked = {"rule": rule, "steps": steps, "topk": topk, "tokens": tokens, "view": self.view_name}
        return {
            "checkpoint": str(self.checkpoint.path),
            "sample": str(self.sample.path),
            "ordering": list(ordering),
            **asked,
        }

    # ------------------------------------------------------------------ chains

    def rounds(
        self,
        ordering: Ordering,
        depth: int | None = None,
        refresh: str = "target",
        on_progress: Callable[[int, int], None] = lambda done, total: None,
        poll: Poll = no_poll,
    ) -> list[Round]:
        """The supervised text of the current sample decoded round by round, as a server would (`drafting.rounds`).

        `on_progress` is given tokens emitted and tokens to emit. Raises WiringError for what cannot be drafted.
        """
        from drafter.drafting.rounds import rounds, walk_json

        inputs = {**self._chain_inputs(ordering, depth), "sample": str(self.sample.path), "refresh": refresh}
        with Logged(self.log, "rounds", inputs) as logged:
            found = rounds(self.run(poll), ordering, self.wiring, inputs["depth"], refresh, on_progress, poll)
            logged.result = {**walk_json(found), "accepted": [one.accepted for one in found]}
        return found

    def breaks(self, ordering: Ordering, depth: int | None = None, poll: Poll = no_poll) -> Breaks:
        """Where and at which tokens the current sample's chains break."""
        from drafter.drafting.chains import draft_ids
        from drafter.scoring.breaks import breaks_json, find_breaks
        from drafter.scoring.counts import rows_needed
        from drafter.scoring.sweep import truths_of

        inputs = {**self._chain_inputs(ordering, depth), "sample": str(self.sample.path)}
        with Logged(self.log, "breaks", inputs) as logged:
            run, wiring, depth = self.run(poll), self.wiring, inputs["depth"]
            truths = truths_of(run, None, wiring)
            rows = rows_needed(truths.mask, self.options.mask, depth)
            drafted = draft_ids(run, ordering, wiring, depth, rows, poll=poll)
            found = find_breaks(drafted, truths, self.options.mask)
            logged.result = breaks_json(found, self.piece)
        return found

    def chain_report(
        self,
        ordering: Ordering,
        paths: Sequence[Path] | None = None,
        depth: int | None = None,
        on_progress: Callable[[ChainReport], None] = lambda report: None,
        poll: Poll = no_poll,
    ) -> ChainReport:
        """Chains from every row, both ways, over the samples in the files `paths`, pooled; the current one if None.

        One that cannot be read or does not fit is skipped, as by `score`. `on_progress` sees the report grow.
        """
        from drafter.scoring.chain_report import ChainReport, chain_report_json

        inputs = self._chain_inputs(ordering, depth)
        names = self._chain_samples(paths)
        with Logged(self.log, "chain_report", {**inputs, "samples": [str(path) for path in names]}) as logged:
            report = ChainReport(ordering, inputs["depth"], self.options.mask, self.view_name, len(names))
            for name in names:
                self._add_chains(report, name, poll)
                on_progress(report)
            logged.result = chain_report_json(report, self.piece)
        return report

    def _chain_inputs(self, ordering: Ordering, depth: int | None) -> dict[str, Any]:
        check_ordering(ordering, len(self.sample.slots), self.checkpoint.fc_inputs)
        asked = {"depth": self.options.depth if depth is None else depth, "mask": self.options.mask}
        return {
            "checkpoint": str(self.checkpoint.path),
            "ordering": list(ordering),
            **asked,
            "view": self.view_name,
            "switched": self.switched(),
        }

    def _chain_samples(self, paths: Sequence[Path] | None) -> list[Path]:
        if paths is None:
            return [self.sample.path]
        return list(dict.fromkeys(name for path in paths for name in self.sample_paths(path)))

    def _add_chains(self, report: ChainReport, name: Path, poll: Poll) -> None:
        """One sample, or the reason why not; that of one named by itself, or of the last where none fits, is raised."""
        poll()
        try:
            report.add(self._run_for(name, len(self.sample.slots), poll), self.wiring, poll)
        except DrafterError as error:
            last = len(report.samples) + len(report.skipped) + 1 == report.planned
            if name in self.options.samples or (last and not report.samples):
                raise
            report.skipped.append((name, str(error)))

    def chain_report_json(self, report: ChainReport, found: Sequence[Round], refresh: str, most: int) -> dict[str, Any]:
        """`accept --json`: a report of this session, with the rounds of the current sample."""
        from drafter.checkpoint.facts import checkpoint_json
        from drafter.drafting.rounds import rounds_json
        from drafter.scoring.chain_report import chain_report_json

        assert self._now.placement is not None
        placement = self._placement_json(self._now.placement)
        return {
            "checkpoint": checkpoint_json(self.checkpoint),
            "device": placement["device"],
            "dtype": placement["dtype"],
            "placement_reason": placement["reason"],
            "switched": self.switched(),
            **chain_report_json(report, self.piece, most),
            "rounds": {
                "sample": str(self.sample.path),
                **rounds_json(found, refresh, self.piece, self.sample.ids),
            },
            "warnings": list(self.load().warnings),
        }

    # ------------------------------------------------------------------ scores

    @property
    def grouping(self) -> Grouping:
        """Which group a sample belongs to: by `--group`, else by the `--samples` under which it lies.

        Files that were named one by one are no groups: the scores of single samples say the same.
        """
        given = self.options.samples
        return Grouping(parse_groups(self.options.groups), given if any(path.is_dir() for path in given) else ())

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

        Each is opened when its turn comes. One that cannot be read or does not fit is skipped, with its reason in the
        result; refused are those that the options name one by one, and the first of all where none can be scored.
        `on_progress` is given the same growing result after every (sample, ordering).
        """
        from drafter.pooling import Pool
        from drafter.results import ScoreResult
        from drafter.score_json import logged_score

        options = self.options
        if not self.has_sample:
            self.choose_first(paths, poll)
        chosen = list(orderings) if orderings is not None else self.orderings()
        depth = options.depth if depth is None else depth
        configured, why = self.configured()
        result = ScoreResult(
            depth, options.mask, self.view_name, configured, why, self.trained(), len(paths) * len(chosen)
        )
        inputs = {
            "paths": [str(p) for p in paths],
            "orderings": [list(o) for o in chosen],
            "depth": depth,
            "mask": options.mask,
            "view": self.view_name,
        }
        with Logged(self.log, "score", inputs) as logged:
            result.warnings = self.load(poll).warnings
            bench, named = self._bench(result, poll), frozenset(options.samples)
            Pool(result, chosen, self.wiring, bench, self.grouping, named, on_progress, poll).add(paths)
            logged.result = logged_score(self.score_json(result))
        return result

    def _bench(self, result: ScoreResult, poll: Poll) -> Bench:
        """What `drafter.pooling` asks of this session, sample by sample."""
        from drafter.pooling import Bench
        from drafter.results import sample_json
        from drafter.scoring.sweep import truths_of

        slots = len(self.sample.slots)

        def known(run: SampleRun) -> tuple[dict[str, Any], Truths]:
            probes = self.probe(poll) if run is self._now.run else self._probe(run.sample, poll)
            choice = self._verifier(run.sample, result, poll)
            return sample_json(run.sample, probes), truths_of(run, choice, self.wiring)

        def drafted(run: SampleRun, ordering: Ordering, ids: Tensor) -> None:
            if run is self._now.run:
                self._now.drafted[ordering] = ids

        return Bench(
            names=self.sample_paths,
            run=lambda path: self._run_for(path, slots, poll),
            known=known,
            drafted=drafted,
        )

    def _run_for(self, path: Path, slots: int, poll: Poll) -> SampleRun:
        from drafter.drafting.context import SampleRun

        if self._now.sample is not None and self._now.sample.path == path:
            return self.run(poll)
        sample = self.open_sample(path)
        if len(sample.slots) != slots:
            raise SampleError(
                f"{len(sample.slots)} recorded states", expected=f"{slots}, as in the sample that is open", where=path
            )
        return SampleRun(self.load(poll), sample)

    def _verifier(self, sample: Sample, result: ScoreResult, poll: Poll) -> VerifierChoice | None:
        from drafter.drafting.verifier import last_norm, recorded_choice, verifier_choice, why_not

        drafter, target = self.load(poll), self._now.target
        vocab = drafter.vocab(self.wiring)
        recorded, reason = recorded_choice(sample, vocab)
        if recorded is not None:
            result.reasons |= dict.fromkeys(("verifier_strict", "in_vocab"), reason)
            return recorded
        probes = self.probe(poll) if sample is self._now.sample else self._probe(sample, poll)
        norm = last_norm(sample, probes)[0]
        cannot = why_not(sample, target, norm)
        if cannot is not None:
            said = reason if sample.verifier_draft is not None else cannot
            result.reasons |= dict.fromkeys(("verifier_strict", "verifier_draft_vocab", "in_vocab"), said)
            return None
        assert target is not None
        return verifier_choice(sample, target, vocab, drafter.placement, poll, norm)

    def score_json(self, result: ScoreResult) -> dict[str, Any]:
        """`score --json` of a result of this session."""
        from drafter.score_json import score_json

        assert self._now.placement is not None
        return {
            **score_json(self.checkpoint, self._placement_json(self._now.placement), result),
            "switched": self.switched(),
        }

    # ------------------------------------------------------------------ checkpoints compared

    def compare_checkpoints(
        self,
        theirs: Found,
        on_progress: Callable[[int, int, str], None] = lambda done, planned, name: None,
        poll: Poll = no_poll,
    ) -> CheckpointComparison:
        """The current checkpoint and another: configs and tensors; `on_progress` is given tensors done and planned."""
        from drafter.checkpoint_compare.compare import compare, comparison_json

        inputs = {"ours": str(self.checkpoint.path), "theirs": str(theirs.path)}
        with Logged(self.log, "compare_checkpoints", inputs) as logged:
            found = compare(self.checkpoint, open_checkpoint(theirs), on_progress, poll)
            logged.result = {k: v for k, v in comparison_json(found).items() if k not in ("configs", "tensors")}
        return found

    def compare_outcomes(
        self,
        ours: Found,
        theirs: Found,
        paths: Sequence[Path],
        most: int = 20,
        on_progress: Callable[[Outcomes], None] = lambda outcomes: None,
        poll: Poll = no_poll,
    ) -> Paired:
        """Two checkpoints on the same samples, each under its own first ordering and trained wiring; at most `most`
        differing rows are listed. Raises SampleError where they have no sample in common."""
        from drafter.checkpoint_compare.outcomes import pair, paired_json

        inputs = {"ours": str(ours.path), "theirs": str(theirs.path), **self._outcome_inputs(paths)}
        with Logged(self.log, "compare_outcomes", inputs) as logged:
            one, two = (self._outcomes(side, paths, on_progress, poll) for side in (ours, theirs))
            found = pair(one, two, most)
            if found is None:
                raise SampleError("no sample that both checkpoints can take", where=theirs.path)
            logged.result = {k: v for k, v in paired_json(found, str).items() if k != "samples"}
        return found

    def run_epochs(
        self,
        found: Sequence[Found],
        paths: Sequence[Path],
        on_progress: Callable[[EpochRun], None] = lambda run: None,
        poll: Poll = no_poll,
    ) -> EpochRun:
        """Every checkpoint of `found` on the samples in the files `paths`, one after another, and what the trainer
        measured; `on_progress` is given the same growing run after each, so that it can be left at any."""
        from drafter.checkpoint_compare.epochs import Run, list_epochs, run_epochs, run_json

        options, inputs = self.options, {"checkpoints": [f.name for f in found], **self._outcome_inputs(paths)}
        with Logged(self.log, "run_epochs", inputs) as logged:
            run = Run(options.depth, options.mask, list_epochs(found, lambda f: open_checkpoint(f).metrics))
            run_epochs(run, lambda f: self._outcomes(f, paths, lambda o: None, poll), on_progress, poll)
            logged.result = {k: v for k, v in run_json(run).items() if k != "epochs"}
        return run

    def _outcome_inputs(self, paths: Sequence[Path]) -> dict[str, Any]:
        options = self.options
        asked = {"depth": options.depth, "mask": options.mask, "view": self.view_name, "orderings": options.orderings}
        return {"paths": [str(p) for p in paths], **asked}

    def _outcomes(
        self, found: Found, paths: Sequence[Path], on_progress: Callable[[Outcomes], None], poll: Poll
    ) -> Outcomes:
        """One checkpoint on all samples, beside what is open here and not in its place."""
        from drafter.checkpoint_compare.outcomes import Bench, Outcomes, collect

        other = Session(replace(self.options, path=found.path))
        other._switches = dict(self._switches)
        other.choose_checkpoint(found)
        slots = len(other.choose_first(paths, poll).slots)
        ordering, why = other.first_ordering()
        warnings = other.load(poll).warnings
        outcomes = Outcomes(ordering, why, other.wiring, str(other.placement), tuple(warnings))
        bench = Bench(other.sample_paths, lambda path: other._run_for(path, slots, poll))
        return collect(outcomes, bench, paths, self.options.depth, self.options.mask, on_progress, poll)

    # ------------------------------------------------------------------ views

    def views(
        self,
        paths: Sequence[Path],
        names: Sequence[str] = (),
        on_progress: Callable[[int, int], None] = lambda done, planned: None,
        poll: Poll = no_poll,
        begun: Callable[[ViewsResult], None] = lambda result: None,
    ) -> ViewsResult:
        """The trained view against served ones (those worth a row if none is named), and what each difference costs,
        on the samples in `paths`, pooled. `on_progress` is given how many scores of how many are in;
        `begun` the result that grows meanwhile.

        Samples are left out as by `score`. Raises WiringError for what is no view of a server.
        """
        from drafter.serving.view_scores import Scores, collapsed, key_of
        from drafter.views import ViewPool, ViewsResult, views_json

        options = self.options
        if not self.has_sample:
            self.choose_first(paths, poll)
        inputs = {"paths": [str(p) for p in paths], "views": list(names), "depth": options.depth, "mask": options.mask}
        with Logged(self.log, "views", inputs) as logged:
            ordering, why = self._trained_ordering()
            trained = key_of(ordering, Wiring.trained(self.checkpoint.run_config))
            plans = [self._view_plan(text, trained) for text in dict.fromkeys(names or WORTH)]
            plans = plans if names else collapsed(plans)
            keys = dict.fromkeys([trained, *(key for plan in plans for key in plan.keys)])
            scores = Scores(tuple(keys), options.depth, options.mask)
            family = self.family()
            result = ViewsResult(
                trained, why, self._slot_depths(), plans, scores, family.name or "unknown", self.target_layers
            )
            result.warnings = self.load(poll).warnings
            slots, named = len(self.sample.slots), frozenset(options.samples)
            begun(result)

            def run(path: Path) -> SampleRun:
                return self._run_for(path, slots, poll)

            ViewPool(result, self.sample_paths, run, named, on_progress, poll).add(paths)
            logged.result = views_json(result)
        return result

    def _view_plan(self, text: str, trained: tuple[Ordering, Wiring]) -> ViewPlan:
        from drafter.serving.view_scores import plan_view

        view = self.served(text)
        if view is None:
            raise WiringError(f"the view {text!r:.60}", expected="a server's, which is held against the trained view")
        slots, inputs, layers = self.sample.slots, self.checkpoint.fc_inputs, self.target_layers
        fed = ordering_of(view, slots, inputs, layers)
        graph = graph_ordering(view, slots, inputs, layers) if view.graph_depths is not None else (None, "")
        difference = ordering_difference(view, self._case(text), trained[0], fed[0], self._slot_depths())
        return plan_view(view, trained, fed, difference, graph)

    def _trained_ordering(self) -> tuple[Ordering, str]:
        """What the trained view is fed: as asked, by the training's config, else by the config's own convention."""
        asked = [name for name in self.options.orderings if name != "all"]
        if asked:
            return self.orderings(asked)[0], "as asked"
        trained = self.trained()
        if trained is not None:
            return trained, "by the training's config"
        configured, why = self._configured_by_dialect()
        if configured is not None:
            producer = self.checkpoint.config.producer
            return configured, f"{why}, in {producer}'s own convention; no training config says (--ordering)"
        raise WiringError(f"no trained ordering: {why}", expected="what training fed", hint="name it with --ordering")

    def _slot_depths(self) -> dict[int, int]:
        """The depth of every slot of the current sample of which somebody says it."""
        from drafter.wiring import depth_of

        found = {slot.index: depth_of(slot, self.target_layers) for slot in self.sample.slots}
        return {slot: depth for slot, depth in found.items() if depth is not None}

    # ------------------------------------------------------------------ what is served

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
            "sample": sample_json(self.sample, self.probe(poll), facts=True) if self.has_sample else None,
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

    # ------------------------------------------------------------------ checks

    def check(
        self,
        found: Found,
        paths: Sequence[Path] = (),
        poll: Poll = no_poll,
        *,
        on_finding: Callable[[Finding], None] = lambda finding: None,
        flags: str | None = None,
        server: str | None = None,
        stages: Sequence[str] | None = None,
        samples_why: str = "",
    ) -> CheckReport:
        """What is wrong with the checkpoint `found` and the samples in the files `paths`; most severe first.

        A checkpoint that cannot be opened is looked at all the same, as far as its files tell. `flags` are a server's
        launch line, `server` its name and version. Raises WiringError for flags or a server that mean nothing.
        """
        from drafter.checks.registry import STAGES
        from drafter.checks.run import report_json, run_checks

        inputs = {"path": str(found.path), "files": len(paths), "flags": flags, "server": server}
        with Logged(self.log, "check", inputs) as logged:
            case = self._check_case(found, paths, poll, flags, server, samples_why)
            report = run_checks(case, on_finding, STAGES if stages is None else stages)
            logged.result = report_json(report)
        for name, trace in report.crashes:
            self.log.write({"record": "error", "call": f"check {name}", "inputs": {}, "error": "crash", "trace": trace})
        return report

    def _check_case(
        self, found: Found, paths: Sequence[Path], poll: Poll, flags: str | None, server: str | None, why: str
    ) -> CheckCase:
        from drafter.checkpoint.target import open_target
        from drafter.checks.case import Case as CheckCase
        from drafter.checks.case import asked_of, open_samples

        asked, named = asked_of(flags, server)
        refusal: DrafterError | None = None
        try:
            current = self._now.checkpoint
            checkpoint = current if current and current.path == found.path else self.choose_checkpoint(found)
            self._find_tokens(None)
        except DrafterError as error:
            checkpoint, refusal = None, error
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

    def note_failure(self, name: str, error: Exception, trace: str) -> None:
        """Keep an unexpected failure in the log, with its traceback, for the bug report."""
        self.log.write({"record": "error", "call": name, "inputs": {}, "error": repr(error), "trace": trace})

    def close(self) -> None:
        self.log.close()

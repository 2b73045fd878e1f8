"""Samples: listed, opened with their claims and masks, made current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from drafter.errors import DrafterError, PathError, SampleError, WiringError
from drafter.files.fingerprint import fingerprint
from drafter.locate import locate_samples
from drafter.locate_tokenizer import locate_tokenizer
from drafter.log import Logged
from drafter.options import Options as Options
from drafter.sample.claims import claim_slots
from drafter.sample.folder import SamplePaths
from drafter.sample.open import open_sample
from drafter.sample.text.supervised import ROLES, choose_mask, mask_facts
from drafter.sample.text.tokens import TokenText, open_tokenizer
from drafter.sample.vocabulary import check_vocabulary
from drafter.wiring import (
    check_ordering,
    parse_ordering,
)

if TYPE_CHECKING:
    from drafter.sample.sample import Sample
from drafter.session.core import Poll, no_poll
from drafter.session.wiring import Wired

TRIED = 256  # files that are tried for a first sample: a folder of other things must not be read to its end


@dataclass(frozen=True)
class SampleList:
    paths: SamplePaths
    why: str


class Samples(Wired):
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

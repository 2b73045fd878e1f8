"""Drafter, wiring, flags, data or engine: what an offline accept length and a served one say together.

A comparison is made at the number of drafts that the server really makes, and only where both numbers exist; what is
missing is said instead of guessed. Accept lengths count the bonus token. Knows no file, no screen and no tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drafter.serving.effective import Effective
from drafter.serving.expect import curve_length

DRAFTER, WIRING, FLAGS, SHIFT, ENGINE, SERVER, NONE = (
    "drafter", "wiring", "flags", "data shift", "engine", "server", "none",
)  # fmt: skip
# how the drafter runs: as training computed it, as its config says, as the named server does
TRAINED, CONFIGURED, SERVED = "trained", "configured", "served"
BETTER = "other text, or sampling"  # why a server may accept more than they predict
HELD_OUT, TRAINING, UNKNOWN = "held-out", "training", "unknown"
NEAR = 0.15  # of the accepted drafts: other prompts and sampling move a served length by about this much
NEAR_LEAST = 0.1  # accepted drafts a round: logs are printed with two decimals over few rounds
FULL = 0.85  # of the drafts that the flags allow: hardly one is refused, so the flags are what limits
# per draft; with three drafts it gives 2.1, below which Model-Optimizer's guide calls an EAGLE-3 head not usable
GOOD_RATE = 0.58
MIN_ROUNDS = 50  # fewer make a mean accept length uncertain by more than what is told apart here
NOTHING_ACCEPTED = 1.02


@dataclass(frozen=True)
class Offline:
    """An accept length without a server. `joint`: P(the first i drafts are right), with which other K can be told.

    view: `trained` (as training computed it), `served` (as the server does) or `configured` (as the config says, where
    no server is known). samples: what they were to training. who: the view in words, e.g. `as sglang@0.5.14 computes
    it`.
    rounds: how many rows or rounds it is a mean of, None where not known. how: what it is a mean of, in words, if that
    is known: of the rounds of the text (`walk`, what a log counts), or of rows.
    """

    length: float
    drafts: int
    view: str = TRAINED
    samples: str = UNKNOWN
    rounds: int | None = None
    joint: tuple[float, ...] = ()
    how: str = ""
    who: str = ""

    def at(self, drafts: int) -> float | None:
        """The accept length with another number of drafts, None where it cannot be told."""
        if drafts == self.drafts:
            return self.length
        return curve_length(self.joint, drafts) if len(self.joint) >= drafts else None


@dataclass(frozen=True)
class Verdict:
    """`kind` is one of the constants above; `server` where wiring and engine cannot be told apart. `missing` is what
    would decide, or decide more.
    """

    kind: str
    sentence: str
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def verdict(offline: Sequence[Offline], served: float | None, flags: Effective | None = None) -> Verdict:
    """What the numbers say together. `served` is the mean accept length of users, `flags` what they were served with.

    Raises nothing: numbers that allow no verdict give the kind `none` with what is missing.
    """
    if served is None:
        return Verdict(NONE, "no verdict: the served accept length is not known", missing=("a server log",))
    if served < 0.99:
        return Verdict(NONE, f"no verdict: a served accept length of {served:.2f} is none, the bonus token alone is 1")
    longest = flags.max_accept_length if flags is not None and not flags.varies else None
    early = _by_flags(served, flags, longest)
    if early is not None:
        return early
    drafts = longest - 1 if longest is not None else _common_drafts(offline)
    if drafts is None:
        return _no_drafts(offline, served, flags)
    tree = flags is not None and (flags.topk or 1) > 1
    return _Compared(offline, served, drafts, longest, tree).decide()


def good_length(drafts: int) -> float:
    """The accept length from which on a drafter is called good: 1 + the sum of GOOD_RATE^i; 2.11 for three drafts."""
    return 1 + sum(GOOD_RATE**i for i in range(1, drafts + 1))


def near(one: float, other: float) -> bool:
    """Whether two accept lengths are too close to be told apart, by the drafts they accept."""
    return abs(one - other) <= max(NEAR * (max(one, other) - 1), NEAR_LEAST)


def _by_flags(served: float, flags: Effective | None, longest: int | None) -> Verdict | None:
    """A verdict that the flags allow alone: what they are wrong about, or numbers that cannot belong together."""
    if flags is None:
        return None
    if flags.wrong and served <= NOTHING_ACCEPTED:
        first = flags.wrong[0]
        return Verdict(FLAGS, f"the flags are wrong: {first.why}", (f"served {served:.2f}: nothing is accepted",))
    if longest is not None and served > longest + 0.02:
        found = f"served {served:.2f}, but the flags allow {longest}"
        return Verdict(NONE, f"no verdict: {found}; they are of different runs", missing=("the flags of this run",))
    return None


def _common_drafts(offline: Sequence[Offline]) -> int | None:
    found = {one.drafts for one in offline}
    return found.pop() if len(found) == 1 and not any(one.joint for one in offline) else None


def _no_drafts(offline: Sequence[Offline], served: float, flags: Effective | None) -> Verdict:
    what = "flags that tell how many drafts a round has" if flags is None else "a fixed number of drafts a round"
    found = "no verdict: how many drafts the server makes is not known" if offline else "no verdict: no offline number"
    missing = [what] if offline else ["an offline accept length", what]
    return Verdict(NONE, found, (f"served {served:.2f}",), tuple(missing))


class _Compared:
    """The offline numbers at the server's number of drafts, by view and samples, beside the served one."""

    def __init__(self, offline: Sequence[Offline], served: float, drafts: int, longest: int | None, tree: bool) -> None:
        self.served, self.drafts, self.longest, self.tree = served, drafts, longest, tree
        self.lengths: dict[tuple[str, str], float] = {}
        self.who = {SERVED: "as this server computes it", CONFIGURED: "as the config says"}
        self.reasons: list[str] = [f"served {served:.2f} with {drafts} draft(s) a round"]
        self.missing: list[str] = []
        for one in offline:
            self._take(one)
        self.deeper = max((one.length for one in offline if one.view == TRAINED and one.drafts > drafts), default=None)

    def _take(self, one: Offline) -> None:
        length = one.at(self.drafts)
        if one.who:
            self.who[one.view] = one.who
        name = f"offline {one.view} view on {one.samples} samples"
        if length is None:
            self.missing.append(f"{name} with {self.drafts} draft(s), not {one.drafts}")
        elif one.rounds is not None and one.rounds < MIN_ROUNDS:
            self.missing.append(f"{name} over {MIN_ROUNDS} rounds or more, not {one.rounds}")
        else:
            self.lengths[one.view, one.samples] = length
            how = one.how if one.drafts == self.drafts else "mean of rows"
            self.reasons.append(f"{name}: {length:.2f}" + (f", {how}" if one.how else ""))

    def decide(self) -> Verdict:
        if self.tree:
            self.reasons.append("the server drafts a tree: a chain's offline length is a lower bound of it")
        rules = (self._limit, self._nothing, self._served_view, self._configured)
        for rule in (*rules, self._as_expected, self._shifted, self._below):
            found = rule()
            if found is not None:
                return found
        return self._say(
            NONE, f"served is better than what these samples predict: {BETTER}", "samples like the traffic"
        )

    def _say(self, kind: str, sentence: str, *missing: str) -> Verdict:
        every = dict.fromkeys([*missing, *self.missing])
        return Verdict(kind, sentence, tuple(self.reasons), tuple(every))

    def _trained(self) -> float | None:
        """The trained view on what is nearest to new text."""
        found = (self.lengths.get((TRAINED, samples)) for samples in (HELD_OUT, UNKNOWN, TRAINING))
        return next((length for length in found if length is not None), None)

    def _good(self, length: float) -> bool:
        return length >= good_length(self.drafts)

    def _limit(self) -> Verdict | None:
        """Nearly every draft that the flags allow is accepted: whatever else is wrong, more drafts would be too."""
        if self.longest is None or self.served - 1 < FULL * (self.longest - 1):
            return None
        trained = self._trained()
        if trained is not None and not self._good(trained) and not near(trained, self.served):
            return self._say(NONE, "no verdict: served is far better than offline", "samples like the traffic")
        more = "what longer drafts bring needs an offline number with more drafts"
        if self.deeper is not None and self.deeper > self.longest:
            more = f"offline reaches {self.deeper:.2f} with more drafts"
        sentence = f"the flags limit: served {self.served:.2f} of at most {self.longest}; {more}"
        return self._say(FLAGS, sentence, *([] if self.deeper else ["an offline length with more drafts"]))

    def _nothing(self) -> Verdict | None:
        if self.lengths:
            return None
        return self._say(NONE, "no verdict: no offline number to compare with", "an offline accept length")

    def _served_view(self) -> Verdict | None:
        """What the server's own function predicts decides between wiring and engine, on text that was not trained."""
        predicted, trained = self._on_new_text(SERVED), self._on_new_text(TRAINED)
        if predicted is None:
            return None
        if not near(self.served, predicted) and self.served < predicted:
            where = f"{self.who[SERVED]} {predicted:.2f}, served {self.served:.2f}"
            return self._say(ENGINE, f"the engine: {where}; neither drafter nor wiring explains it")
        if trained is None or trained <= predicted or near(trained, predicted):
            return None
        found = f"as trained {trained:.2f}, {self.who[SERVED]} {predicted:.2f}, served {self.served:.2f}"
        if near(self.served, predicted):
            return self._say(WIRING, f"the wiring: {found}")
        if not near(self.served, trained) and self.served - predicted < trained - self.served:
            between = "the wiring is wrong, and the server is not quite what its view says"
            return self._say(WIRING, f"the wiring: {found}; {between}", "the server's exact version, flags and config")
        return None

    def _on_new_text(self, view: str) -> float | None:
        return self.lengths.get((view, HELD_OUT), self.lengths.get((view, UNKNOWN)))

    def _configured(self) -> Verdict | None:
        """What the config says where no server is known: it explains what is served, or the server must be named."""
        predicted, trained = self._on_new_text(CONFIGURED), self._on_new_text(TRAINED)
        if predicted is None or trained is None or trained <= predicted or near(trained, predicted):
            return None
        found = f"as trained {trained:.2f}, {self.who[CONFIGURED]} {predicted:.2f}, served {self.served:.2f}"
        if near(self.served, predicted):
            return self._say(WIRING, f"the wiring: {found}")
        if self.served < predicted:
            more = "the config does not explain all of it"
            return self._say(SERVER, f"look at the server: {found}; {more}", "the server and its version")
        if not near(self.served, trained) and self.served - predicted < trained - self.served:
            return self._say(WIRING, f"the wiring: {found}", "the server and its version")
        return None

    def _as_expected(self) -> Verdict | None:
        """The held-out number is what is served: the drafter is what it is, unless its training samples say more."""
        held_out = self.lengths.get((TRAINED, HELD_OUT))
        if held_out is None or not near(self.served, held_out):
            return None
        training = self.lengths.get((TRAINED, TRAINING))
        gap = training is not None and training > held_out and not near(training, held_out)
        found = f"held-out samples give {held_out:.2f}, served {self.served:.2f}"
        seen = f"{training:.2f} on training samples" if gap else ""
        if self._good(held_out):
            return self._say(NONE, f"as expected on new text: {found}; {seen}" if gap else f"as expected: {found}")
        if training is not None and gap and self._good(training):
            found = f"{seen}, {held_out:.2f} on held-out ones, served {self.served:.2f}"
            return self._say(SHIFT, f"the drafter does not generalise: {found}, as expected on new text")
        more = [] if training is not None else ["the length on training samples: untrained, or not general?"]
        found = (
            f"held-out samples give {held_out:.2f}, served {self.served:.2f}; good is {good_length(self.drafts):.2f}"
        )
        return self._say(DRAFTER, f"the drafter: {found}", *more)

    def _shifted(self) -> Verdict | None:
        """Only training samples, or samples of unknown kind: they cannot tell a drafter from its data."""
        if (TRAINED, HELD_OUT) in self.lengths:
            return None
        length = self._trained()
        if length is None:
            return self._say(NONE, "no verdict: the trained view is not known", "an offline length, trained view")
        better = self.served > length and not near(self.served, length)
        if better and (TRAINED, TRAINING) not in self.lengths:
            found = f"served {self.served:.2f} is better than these samples ({length:.2f}): {BETTER}"
            return self._say(NONE, f"as good as expected, or better: {found}")
        if near(self.served, length) or better:
            if self._good(length):
                return self._say(NONE, f"as expected: offline {length:.2f}, served {self.served:.2f}")
            kind = DRAFTER if (TRAINED, TRAINING) in self.lengths else NONE
            sentence = f"offline {length:.2f}, served {self.served:.2f}; good is {good_length(self.drafts):.2f}"
            if kind == DRAFTER:
                return self._say(DRAFTER, f"the drafter, even on its training samples: {sentence}")
            return self._say(NONE, f"no verdict: {sentence}", "whether the samples were trained on")
        if (TRAINED, TRAINING) in self.lengths:
            found = f"no verdict: training samples give {length:.2f}, served {self.served:.2f}"
            return self._say(NONE, found, "held-out samples: the data, or the server?")
        return None

    def _below(self) -> Verdict | None:
        """Better on new text offline than served, and nothing says how this server computes the drafter."""
        length = self._trained()
        if length is None or self.served >= length or near(self.served, length):
            return None
        drafter = "is good" if self._good(length) else f"is not good either ({good_length(self.drafts):.2f} is)"
        found = f"look at the server: offline {length:.2f}, served {self.served:.2f}; the drafter {drafter}"
        known = (TRAINED, HELD_OUT) in self.lengths
        more = [] if known else ["whether the samples were trained on"]
        if not any(view == SERVED for view, _ in self.lengths):
            more = ["the served view: wiring or engine?", *more]
        return self._say(SERVER, found, *more)


def verdict_json(found: Verdict) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "sentence": found.sentence,
        "reasons": list(found.reasons),
        "missing": list(found.missing),
    }

"""What the Step view says about the row under the cursor, as lines of text: the chain, the top predictions, the others.

Flat for the lines below the table at 80 columns, tall for the pane at the right of a wide screen. Knows no widget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from drafter.wiring import Ordering, name

if TYPE_CHECKING:
    from drafter.drafting.readout import ChainLink, RowReadout
    from drafter.results import StepResult

HIT, MISS, OUTSIDE, NOTHING = "=", "x", "o", "-"
COUNTED = "|"
LEGEND = [
    (HIT, "the prediction is the sample's token"),
    (MISS, "the prediction is another token"),
    (OUTSIDE, "the sample's token is outside of the draft vocabulary: it cannot be predicted"),
    (NOTHING, "no token to compare with: past the end of the sample"),
    (COUNTED, "a row that counts in the scores, by the mask mode"),
]
Line = list[tuple[str, str]]
Piece = Callable[[int], str]
Others = Mapping[Ordering, int]


def verdict(readout: RowReadout) -> tuple[str, str]:
    """Glyph and style name of a row."""
    if readout.truth is None:
        return NOTHING, "dim"
    if readout.hit:
        return HIT, "good"
    return (MISS, "bad") if readout.truth_in_vocab else (OUTSIDE, "outside")


def flat(step: StepResult, piece: Piece) -> list[Line]:
    """Four lines: what was fed, the top predictions, the chain up to its first miss, what a server makes of it."""
    top: Line = [("top   ", "dim")]
    for p in step.readout.predictions:
        top.append((f"{p.prob:.2f} {piece(p.id)}  ", "good" if p.id == step.readout.truth else ""))
    chain: Line = [("chain ", "dim")]
    for link in step.chain:
        glyph, look = mark(link)
        chain.append((f"{glyph} {piece(link.id)}  ", look))
        if not link.hit:
            chain.append((f"(true {piece(link.truth)})" if link.truth is not None else "(past the end)", "dim"))
            break
    return [head(step, piece), top, chain, [(f"      {': '.join(fate(step))}", "")]]


def mark(link: ChainLink) -> tuple[str, str]:
    """Glyph and style name of a draft."""
    if link.truth is None:
        return NOTHING, "dim"
    return (HIT, "good") if link.hit else (MISS, "bad")


def tall(step: StepResult, piece: Piece) -> list[Line]:
    """One line a prediction, one line a draft."""
    readout = step.readout
    lines: list[Line] = [head(step, piece), [], [("top predictions", "bold")]]
    for p in readout.predictions:
        hit = p.id == readout.truth
        said = f" {p.rank} {HIT if hit else ' '} {p.prob:.3f} {p.logit:7.2f}  {piece(p.id)}"
        lines.append([(said, "good" if hit else "")])
    lines += [[], [(f"draft steps 0..{len(step.chain) - 1} from here", "bold")]]
    rejected = False
    for k, link in enumerate(step.chain):
        glyph, look = mark(link)
        line: Line = [(f" {k} {glyph} {link.prob:.3f}  {piece(link.id)}", "dim" if rejected else look)]
        if link.truth is None:
            line.append(("  (past the end)", "dim"))
        elif not link.hit:
            line.append((f"  true {piece(link.truth)}", "dim"))
            line.append(("" if rejected else "  <- rejected", "bad"))
        rejected = rejected or not link.hit
        lines.append(line)
    return [*lines, *([(said, "")] for said in fate(step)), [], [("other orderings at this row", "bold")]]


def head(step: StepResult, piece: Piece) -> Line:
    readout = step.readout
    truth = "past the end" if readout.truth is None else piece(readout.truth)
    glyph, look = verdict(readout)
    place = "outside of the draft vocabulary" if readout.truth is not None and not readout.truth_in_vocab else ""
    rank = f"rank {readout.truth_rank}" if readout.truth_rank is not None else place
    said = f" fed {piece(readout.fed)}  true {truth} "
    return [(f"token {step.at}", "bold"), (said, ""), (f"{glyph} {rank}", look)]


def fate(step: StepResult) -> tuple[str, str]:
    """What a server would make of the chain, and the accept length; steps count from 0 as everywhere."""
    right, last = step.accept_length - 1, len(step.chain) - 1
    length = f"accept length {step.accept_length} with the bonus token"
    if right > last:
        return f"steps 0..{last} all accepted", length
    if step.chain[right].truth is None:
        return f"the sample ends before step {right} of 0..{last}", f"{right} accepted so far"
    return f"rejected at step {right} of 0..{last}", length


def others_flat(others: Others | None, truth: int | None, piece: Piece) -> list[Line]:
    """Two lines: the orderings that are right here, and what the others predict, the commonest first."""
    if others is None:
        return [[("other orderings …", "dim")]]
    right = [o for o, token in others.items() if token == truth]
    first: Line = [(f"{HIT} {len(right)} of {len(others)} orderings right  ", "good" if right else "dim")]
    first.append((" ".join(name(o) for o in right), ""))
    by_token: dict[int, list[Ordering]] = {}
    for ordering, token in others.items():
        if token != truth:
            by_token.setdefault(token, []).append(ordering)
    second: Line = [(f"{MISS} ", "bad" if by_token else "dim")]
    for token, orderings in sorted(by_token.items(), key=lambda item: -len(item[1])):
        second += [(f"{piece(token)} ", "bad"), (f"{' '.join(name(o) for o in orderings)}  ", "")]
    return [first, second]


def others_tall(
    others: Others | None,
    truth: int | None,
    piece: Piece,
    label: Callable[[Ordering], str],
    current: Ordering | None,
    room: int,
) -> list[Line]:
    """One line an ordering, as many as there is `room` for."""
    if others is None:
        return [[("…", "dim")]]
    lines: list[Line] = []
    for ordering, token in others.items():
        hit = token == truth
        mark = ">" if ordering == current else " "
        said = f"{mark} {HIT if hit else MISS} {name(ordering)} {label(ordering)}  {piece(token)}"
        lines.append([(said, "good" if hit else "bad")])
    if len(lines) > room:
        lines = [*lines[: room - 1], [(f"… {len(lines) - room + 1} more in view 4", "dim")]]
    return lines

"""Whether the token ids of a sample are in the vocabulary of the drafter that is open; knows no tokenizer."""

from __future__ import annotations

from dataclasses import replace

from drafter.sample.sample import Sample

_ZEROS = "zeros stand for their embedding; they mark images, or the sample belongs to another tokenizer"


def check_vocabulary(sample: Sample, size: int) -> Sample:
    """`sample` with a warning for ids outside of 0..size-1 where it has some, in place of one for another size.

    The first token does not matter, it is never embedded: row t takes x[t + 1].
    """
    kept = [warning for warning in sample.warnings if _ZEROS not in warning]
    ids = sample.ids[1:]
    outside = ids[(ids < 0) | (ids >= size)]
    if outside.numel():
        which = f"of 0..{size - 1} (the first is {int(outside[0])})"
        kept.append(f"{outside.numel()} of {sample.length} token ids are outside {which}: {_ZEROS}")
    return replace(sample, warnings=tuple(kept))

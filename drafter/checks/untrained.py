"""Whether a matrix still looks as it was made: independent numbers of one spread, as initialisers draw them.

In a matrix of independent numbers the norms of rows and of columns scatter by a known amount; training gives some rows
or columns more than others. With kurtosis k, the norm of n such numbers scatters by sqrt((k - 1) / 4n) of itself, and
that scatter over m norms is known to 1 / sqrt(2m) of itself: `rows` and `columns` count such deviations.

Measured on a trained drafter (H 576): after one epoch the largest of the two is 6.4 (o_proj) to 345 (fc), after eight
21 to 586; N(0, 0.02) of the same shapes stays below 3.2. A small trained matrix (o_proj, 128 x 128) may stay at 1.9,
so that being even is no proof alone: its spread must be an initialiser's too, or the matrix large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from drafter.files.stored import FLOATS, StoredTensor

if TYPE_CHECKING:
    import torch

    from drafter.checks.case import Case

FLOATING = FLOATS | {"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}

EVEN = 3.5  # deviations up to which rows and columns are those of independent numbers
CLEAR = 6.0  # and from which they are not
SMALLEST, LARGE = 32, 256  # rows and columns: below the first nothing is told, from the second also without the spread
COPIED = ("embed_tokens.weight", "lm_head.weight")  # from the target, by many trainers: no sign of training
TELLING = 1 << 14  # numbers in a matrix that training never left even, on drafters that are known, o_proj apart
_BLOCK = 1 << 22  # elements read at once


@dataclass(frozen=True)
class Look:
    """`constant`: the one value that it holds, None where it holds several. Of a matrix also the deviations, and its
    rows and columns of zeros: (first, last) of each run."""

    shape: tuple[int, ...]
    constant: float | None
    mean: float
    std: float
    nan: int = 0
    inf: int = 0
    largest: float = 0.0  # magnitude
    kurtosis: float = 0.0
    rows: float = 0.0
    columns: float = 0.0
    zero_rows: tuple[tuple[int, int], ...] = ()
    zero_columns: tuple[tuple[int, int], ...] = ()

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and min(self.shape) >= SMALLEST

    def facts(self) -> dict[str, Any]:
        found = {
            "std": self.std,
            "mean": self.mean,
            "kurtosis": self.kurtosis,
            "rows": self.rows,
            "columns": self.columns,
        }
        return {"shape": list(self.shape)} | {name: float(f"{value:.4g}") for name, value in found.items()}


def looks(case: Case) -> dict[str, Look]:
    """The look of every tensor of floats, by canonical name; each is read once for all checks."""

    def make() -> dict[str, Look]:
        tensors = case.checkpoint.tensors
        return {name: look_at(t, case.poll) for name, t in tensors.items() if t.dtype in FLOATING and t.numel}

    return case.once("looks", make)


def look_at(stored: StoredTensor, poll: Callable[[], None]) -> Look:
    """One pass over `stored` by blocks of rows; what is no number is counted and taken as zero."""
    import torch

    width = stored.numel // stored.shape[0] if stored.shape else 1
    length = stored.shape[0] if stored.shape else 1
    step = max(1, _BLOCK // max(width, 1))
    sums, columns = torch.zeros(4, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    low, high, nan, inf, rows = math.inf, -math.inf, 0, 0, []
    for start in range(0, length, step):
        poll()
        stop = min(start + step, length)
        block = _floats(stored.rows(start, stop) if stored.shape else stored.read()).reshape(-1, width)
        if not bool(block.isfinite().all()):
            nan, inf = nan + int(block.isnan().sum()), inf + int(block.isinf().sum())
            block = block.nan_to_num(0, 0, 0)
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        squares = block.square()
        powers = (block, squares, squares * block, squares.square())
        sums += torch.stack([power.sum(dtype=torch.float64) for power in powers])
        rows.append(squares.sum(1, dtype=torch.float64))
        columns += squares.sum(0, dtype=torch.float64)
    one = low if low == high and not nan and not inf else None
    plain = Look(stored.shape, one, float(sums[0]) / stored.numel, 0.0, nan, inf, max(-low, high))
    return plain if low == high else _measured(plain, (sums / stored.numel).tolist(), torch.cat(rows), columns)


def _measured(plain: Look, moments: list[float], rows: torch.Tensor, columns: torch.Tensor) -> Look:
    """`plain` with spread, kurtosis and deviations; `rows` and `columns` are sums of squares."""
    mean, second, third, fourth = moments
    variance = second - mean * mean
    if not variance > 0 or not math.isfinite(fourth):
        return plain
    kurtosis = (fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4) / variance**2
    found = replace(plain, std=math.sqrt(variance), kurtosis=kurtosis)
    if len(plain.shape) != 2:
        return found
    by_row, by_column = _deviations(rows, plain.shape[1], kurtosis), _deviations(columns, plain.shape[0], kurtosis)
    found = replace(found, rows=by_row, columns=by_column)
    return replace(found, zero_rows=_zero_runs(rows), zero_columns=_zero_runs(columns))


def _zero_runs(squares: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """(first, last) of each run of zeros in the sums of squares."""
    runs: list[tuple[int, int]] = []
    for at in (squares == 0).nonzero().flatten().tolist():
        runs[-1:] = [(runs[-1][0], at)] if runs and runs[-1][1] == at - 1 else [*runs[-1:], (at, at)]
    return tuple(runs)


def _floats(block: torch.Tensor) -> torch.Tensor:
    """As float32, which holds every smaller type exactly; float64 stays."""
    return block if str(block.dtype) == "torch.float64" else block.float()


def _deviations(squares: torch.Tensor, count: int, kurtosis: float) -> float:
    """How far the scatter of norms is from that of independent numbers; `squares` [m] are sums of `count` squares."""
    norms = squares.sqrt()
    if norms.numel() < 2 or float(norms.mean()) == 0 or kurtosis <= 1:
        return 0.0
    expected = math.sqrt((kurtosis - 1) / (4 * count))
    return (float(norms.std() / norms.mean()) / expected - 1) * math.sqrt(2 * norms.numel())


def structured(look: Look) -> bool:
    """Whether a matrix is clearly not one of independent numbers."""
    return look.is_matrix and look.constant is None and max(look.rows, look.columns) > CLEAR


def even(look: Look) -> bool:
    """Whether the rows and the columns of a matrix are those of independent numbers."""
    return look.is_matrix and look.constant is None and max(abs(look.rows), abs(look.columns)) < EVEN


def initial_value(look: Look, initializer_range: float) -> str:
    """What makes a matrix look as it was made; empty where it does not."""
    if not even(look) or abs(look.mean) > 6 * look.std / math.sqrt(math.prod(look.shape)):
        return ""
    count = math.prod(look.shape)
    normal = abs(look.kurtosis - 3) < 5 * math.sqrt(24 / count)
    uniform = abs(look.kurtosis - 1.8) < 0.05
    spreads = {f"{value:g}": value for value in (initializer_range, 0.02)}
    # the spread of n numbers is known to 1 / sqrt(2n); bfloat16 adds a little
    near = 0.003 + 5 / math.sqrt(2 * count)
    for name, spread in spreads.items():
        if normal and abs(look.std / spread - 1) < near:
            return f"the initial values N(0, {name}), std {look.std:.5f}"
    if uniform and abs(look.std * math.sqrt(3 * look.shape[1]) - 1) < near:
        return f"the initial values of a linear layer, uniform, std {look.std:.5f}"
    if (normal or uniform) and min(look.shape) >= LARGE:
        return f"independent random numbers, std {look.std:.5f}"
    return ""


def noise_among(looks: Mapping[str, Look]) -> list[str]:
    """The matrices that look like independent random numbers, where others of the same file clearly do not.

    Not proof: of a small drafter training may leave o_proj even, which is not counted then.
    """
    told = {name: look for name, look in looks.items() if look.is_matrix and math.prod(look.shape) >= TELLING}
    if not any(structured(look) for name, look in told.items() if name not in COPIED):
        return []
    return [n for n, look in told.items() if even(look) and ("o_proj" not in n or min(look.shape) >= LARGE)]


def mostly_trained(looks: Mapping[str, Look]) -> bool:
    """Whether half of the matrices or more are clearly no independent numbers."""
    told = [look for name, look in looks.items() if look.is_matrix and name not in COPIED]
    return bool(told) and 2 * sum(map(structured, told)) >= len(told)

"""One thread: the tests share two cores, and sums of floats must not depend on how they were split."""

from __future__ import annotations

import torch

torch.set_num_threads(1)

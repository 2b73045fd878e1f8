"""Where and in which precision the drafter runs: chosen once, with the reason in words that are shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from drafter.errors import DeviceError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_STORED = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
LARGE = 1_000_000_000  # bytes of weights from which float32 on a CPU costs more than its exactness is worth


@dataclass(frozen=True)
class Placement:
    device: torch.device
    dtype: torch.dtype
    reason: str

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.device} {self.dtype_name} ({self.reason})"


def choose(device: str, dtype: str, stored_dtype: str, weight_bytes: int) -> Placement:
    """The placement for `--device` and `--dtype`; `auto` is CUDA in the stored dtype, else the CPU in float32.

    On the CPU, bfloat16 is taken for weights of more than 1 GB where the CPU multiplies it natively.
    Raises DeviceError for what this machine or this torch build does not have.
    """
    chosen, why = _device(device)
    if dtype != "auto":
        if dtype not in DTYPES:
            raise DeviceError(f"the dtype {dtype!r}", expected="auto, float32, bfloat16 or float16")
        return Placement(chosen, DTYPES[dtype], f"{why}, dtype as asked")
    if chosen.type == "cpu":
        if weight_bytes > LARGE and stored_dtype == "BF16" and native_bfloat16():
            return Placement(chosen, torch.bfloat16, f"{why}; weights over 1 GB and native bfloat16")
        return Placement(chosen, torch.float32, f"{why}; float32 is exact")
    return Placement(chosen, _STORED.get(stored_dtype, torch.float32), f"{why}, dtype as stored")


def _device(name: str) -> tuple[torch.device, str]:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda"), "a CUDA device is there"
        return torch.device("cpu"), "no CUDA device" if torch.backends.cuda.is_built() else "this torch has no CUDA"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"the device {name!r}", expected="auto, cpu, cuda, cuda:N or mps") from error
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise DeviceError(f"the device {name!r}", expected=f"one of {count} CUDA devices", hint="use --device cpu")
    elif device.type == "mps":
        if not torch.backends.mps.is_available():
            raise DeviceError("the device 'mps'", expected="an Apple GPU", hint="use --device cpu")
    elif device.type != "cpu":
        raise DeviceError(f"the device {name!r}", expected="auto, cpu, cuda, cuda:N or mps")
    return device, "as asked"


def native_bfloat16() -> bool:
    """Whether the CPU has instructions for bfloat16 products (AVX512_BF16 or AMX)."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file:
            flags = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return False
    return any(flag in flags.split() for flag in ("avx512_bf16", "amx_bf16", "bf16"))

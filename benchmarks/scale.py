"""What size costs: a folder of 100,000 samples listed, and a 2 GB sample opened, against the obvious script.

    python -m benchmarks.scale [FOLDER]     (needs 2.1 GB of room in FOLDER, default a temporary one; removed after)

Each part runs in a process of its own, which says how long it took and how much memory it held at most. The obvious
script lists with `Path.rglob` and sorts by number; it loads the file with `safetensors`, which maps it, and slices.
Memory is read from /proc: Linux only.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = 100_000
TOKENS, SLOTS, WIDTH = 61_440, 4, 4096  # 2.01 GB in bfloat16

_MEASURE = """
import json, sys, time
from pathlib import Path
where = Path(sys.argv[1])
{imports}
start = time.perf_counter()
{work}
took = time.perf_counter() - start
held = next(l.split()[1] for l in open("/proc/self/status") if l.startswith("VmHWM"))
print(json.dumps([took, int(held) / 1024, {answer}]))
"""

PARTS = {
    "listing, ours": ("from drafter.sample.folder import list_samples", "found = list_samples([where])", "len(found)"),
    "listing, plain": (
        "import re",
        "found = sorted(where.rglob('*.pt'), key=lambda p: [int(n) for n in re.findall('[0-9]+', p.name)])",
        "len(found)",
    ),
    "first rows, ours": (
        "import torch\nfrom drafter.sample.open import open_sample",
        "sample = open_sample(where)\nrows = torch.stack([s.tensor.rows(0, 20) for s in sample.slots])",
        "list(rows.shape)",
    ),
    "first rows, plain": (
        "import torch\nfrom safetensors.torch import load_file",
        "rows = load_file(where)['hidden_states'][:20].clone()",
        "list(rows.shape)",
    ),
    "slots probed, ours": (
        "import torch\nfrom drafter.sample.open import open_sample\n"
        "from drafter.sample.probes.probe import probe_slots",
        "probes = probe_slots(open_sample(where), None)",
        "len(probes)",
    ),
    "norms, plain": (
        "import torch\nfrom safetensors.torch import load_file",
        "norms = load_file(where)['hidden_states'].float().norm(dim=-1).mean(0)",
        "len(norms)",
    ),
}


def run(part: str, where: Path) -> tuple[float, float]:
    """Seconds and the most megabytes held, Python and torch included."""
    imports, work, answer = PARTS[part]
    program = _MEASURE.format(imports=imports, work=work, answer=answer)
    done = subprocess.run([sys.executable, "-c", program, str(where)], capture_output=True, text=True, check=True)
    took, held, said = json.loads(done.stdout)
    print(f"{part:20} {took * 1000:9.1f} ms  {held:7.0f} MB  {said}")
    return took, held


def write_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for i in range(FILES):
        (folder / f"data_{i}.pt").touch()
    return folder


def write_sample(path: Path) -> Path:
    """Random rows, the same thousand again and again; written block by block."""
    import torch

    size = TOKENS * SLOTS * WIDTH * 2
    tensors = {
        "hidden_states": {"dtype": "BF16", "shape": [TOKENS, SLOTS, WIDTH], "data_offsets": [0, size]},
        "token_ids": {"dtype": "I64", "shape": [TOKENS], "data_offsets": [size, size + TOKENS * 8]},
    }
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    block = (torch.randn(1024, SLOTS, WIDTH) * 20).bfloat16().view(torch.int16).numpy().tobytes()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(TOKENS // 1024):
            file.write(block)
        file.write(torch.randint(0, 1000, (TOKENS,)).numpy().tobytes())
    return path


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as root:
        folder, sample = write_folder(Path(root) / "many"), write_sample(Path(root) / "hs_0.safetensors")
        for ours, plain, where in (
            ("listing, ours", "listing, plain", folder),
            ("first rows, ours", "first rows, plain", sample),
            ("slots probed, ours", "norms, plain", sample),
        ):
            (took, held), (took_plain, held_plain) = run(ours, where), run(plain, where)
            print(f"{'':20} {took_plain / took:9.1f} times as fast, {held / held_plain:.2f} of the memory\n")


if __name__ == "__main__":
    main()

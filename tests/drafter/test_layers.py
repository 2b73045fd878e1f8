"""Listing is fast because nothing heavy is imported for it; and the layers know only those below them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "pyarrow", "textual", "plotext", "rich", "tokenizers", "tiktoken", "safetensors")
# each may import those after it
LAYERS = [
    "pooling",
    "score_json",
    "results",
    "checks",
    "fix",
    "serving",
    "checkpoint_compare",
    "scoring",
    "drafting",
    "model",
    "wiring",
    "sample",
    "checkpoint",
    "files",
    "log",
    "export",
    "json_text",
    "errors",
    "safe",
]

LISTING = """
import importlib, pkgutil, sys
from pathlib import Path
import drafter
for package in ("files", "checkpoint", "sample"):
    for module in pkgutil.walk_packages([f"{list(drafter.__path__)[0]}/{package}"], f"drafter.{package}."):
        importlib.import_module(module.name)
import drafter.wiring
from drafter.checkpoint.checkpoint import open_checkpoint
from drafter.checkpoint.target import open_target
from drafter.files.find import find_checkpoints
from drafter.sample.folder import list_samples
root = Path(sys.argv[1])
for found in find_checkpoints(root / "run"):
    checkpoint = open_checkpoint(found)
    print(found.name, len(checkpoint.tensors), checkpoint.config.aux_depths, checkpoint.disagreements)
print(open_target(root / "target").hidden_size, len(list_samples([root / "samples"])))
print("imported:", sorted(name for name in sys.argv[2:] if name in sys.modules))
"""


def test_listing_and_headers_import_nothing_heavy(tmp_path: Path) -> None:
    weights = tiny.tiny_weights()
    for epoch in range(2):
        tiny.write_flat(tmp_path / f"run/{epoch}", weights, speculators_config=True)
    tiny.write_target(tmp_path / "target", weights, tokenizer=True)
    tiny.write_v1_sample(tmp_path / "samples/data_0.pt", tiny.tiny_sample(0, weights))
    command = [sys.executable, "-c", LISTING, str(tmp_path), *HEAVY]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    *listed, rest, imported = done.stdout.splitlines()
    assert len(listed) == 2 and all("aux_depths" in line for line in listed)
    assert rest == "32 1"
    assert imported == "imported: []"


def modules() -> list[Path]:
    own = [path for layer in LAYERS for path in (ROOT / "drafter").glob(f"{layer}/**/*.py")]
    return own + [ROOT / f"drafter/{layer}.py" for layer in LAYERS if (ROOT / f"drafter/{layer}.py").exists()]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_layer_knows_only_those_below(path: Path) -> None:
    layer = path.relative_to(ROOT / "drafter").parts[0].removesuffix(".py")
    below = LAYERS[LAYERS.index(layer) :]
    for node in ast.walk(ast.parse(path.read_text())):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            parts = name.split(".")
            assert parts[0] not in ("eagle3_tui", "textual", "rich", "plotext", "click"), name
            assert parts[0] != "drafter" or parts[1] in below, name

"""Makes the data behind `eagle3-tui demo`: trains a small target and an EAGLE-3 drafter for it, and records samples.

Corpus: `pydoc_data.topics`, the language reference that every CPython carries (PSF-2.0). Nothing is downloaded. The
target is a Llama of two million parameters; the drafter learns from the target's own continuations and is checked on
prompts from topics that neither has seen. Weights and samples go to `eagle3_tui/demo/data`, with a README that says
what was measured.

    python scripts/train_demo.py            about ten minutes on two cores
    python scripts/train_demo.py --fast --out /tmp/demo     a smoke run: half a minute, nothing is learned

When other work wants the same cores, set OMP_WAIT_POLICY=passive: threads that spin while they wait for one another
make the run many times slower there.

Seeds are fixed, but the sums of another CPU or torch round differently, and another Python has other topics: the
numbers of a new run are close to the README's, not equal.
"""

import argparse
import time
from pathlib import Path

import torch
from demo_training import corpus, drafter, readme, samples, ship, target
from demo_training.recipe import Recipe

DATA = Path(__file__).resolve().parents[1] / "eagle3_tui" / "demo" / "data"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path, default=DATA, help="folder to write (default: the package's demo data)")
    options.add_argument("--fast", action="store_true", help="a smoke run; needs --out, for its result is useless")
    chosen = options.parse_args()
    if chosen.fast and chosen.out == DATA:
        options.error("--fast would put untrained weights into the package: name another folder with --out")
    recipe = Recipe().fast() if chosen.fast else Recipe()
    torch.set_num_threads(recipe.threads)
    start = time.monotonic()
    make(recipe, chosen.out)
    report = readme.measure(recipe, chosen.out, time.monotonic() - start)
    print(report)
    (chosen.out / "README.md").write_text(report, encoding="utf-8")


def make(recipe: Recipe, out: Path) -> None:
    text = corpus.build(recipe)
    print(f"{len(text.train)} tokens to train on, {len(text.held_out)} held out ({', '.join(text.held_out_topics)})")
    model = target.train(recipe, text.train, text.held_out)
    train = samples.generate(recipe, model, text, text.train, recipe.train_samples, seed=recipe.seed + 1)
    held_out = samples.generate(recipe, model, text, text.held_out, recipe.held_out_samples, seed=recipe.seed + 2)
    print(f"{len(train)} + {len(held_out)} samples, {sum(len(s.ids) for s in train)} tokens")

    ship.clear(out)
    ship.write_target(out / "target", recipe, model, text)
    ship.write_samples(out / "samples" / "train", recipe, train, first_index=0)
    ship.write_samples(out / "samples" / "held_out", recipe, held_out, first_index=len(train))
    vocab = drafter.choose_vocab(recipe, train)
    for epoch, steps, weights, metrics in drafter.epochs(recipe, model, vocab, train, held_out):
        if epoch in recipe.shipped_epochs:
            state = {"epoch": epoch, "local_step": 0, "global_step": steps}
            ship.write_checkpoint(out / "output" / str(epoch), recipe, vocab, weights, state, metrics)


if __name__ == "__main__":
    main()

"""Every number that decides what the demo looks like. H target and drafter width, V vocabulary, D draft vocabulary."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Recipe:
    seed: int = 2026
    threads: int = 2

    # the target
    vocab: int = 1024  # V
    hidden: int = 128  # H
    heads: int = 4
    mlp: int = 384
    # What each layer writes into the residual stream is multiplied by its gain. Large models' streams grow with depth;
    # a small model left to itself has layers that all look alike, and feeding a drafter the wrong ones costs nothing.
    gains: tuple[float, ...] = (0.3, 0.7, 1.6, 4.0, 9.0, 16.0)
    rope_theta: float = 10_000.0
    context: int = 256
    target_steps: int = 540
    target_batch: int = 12
    target_lr: float = 3e-3

    # the samples
    depths: tuple[int, int, int] = (2, 4, 6)  # a, b, c: layers passed; c = n: it gives the verifier's choice
    train_samples: int = 1536
    held_out_samples: int = 96
    prompt_tokens: tuple[int, int] = (24, 64)
    sample_tokens: tuple[int, int] = (120, 256)
    temperature: float = 0.4  # of every second sample; the others are greedy
    shipped: int = 6  # of each set

    # the drafter
    draft_vocab: int = 576  # D
    kv_heads: int = 2
    ttt_steps: int = 3
    step_decay: float = 0.8  # weight of training-time-test step k: step_decay ** k
    epochs: int = 8
    drafter_batch: int = 8
    drafter_lr: float = 4e-3
    shipped_epochs: tuple[int, ...] = (0, 3, 7)

    @property
    def layers(self) -> int:  # n
        return len(self.gains)

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def fast(self) -> "Recipe":
        """A smoke run: every step is taken, nothing is learned."""
        return replace(
            self,
            target_steps=30,
            train_samples=32,
            held_out_samples=12,
            epochs=3,
            shipped_epochs=(0, 1, 2),
        )

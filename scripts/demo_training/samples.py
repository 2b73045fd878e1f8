"""Samples: the target continues prompts from the corpus, and its residual stream at a few depths is recorded."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .corpus import END, Corpus
from .recipe import Recipe
from .target import Target

BATCH = 128


@dataclass(frozen=True)
class Sample:
    ids: Tensor  # i64 [T]
    prompt: int  # tokens of the corpus; the rest is the target's own
    states: list[Tensor]  # 4 x bf16 [T, H]: the embedding and the depths a, b, c
    greedy: bool

    @property
    def loss_mask(self) -> Tensor:
        """i64 [T]: 1 where the target wrote the token."""
        return (torch.arange(len(self.ids)) >= self.prompt).long()


def generate(recipe: Recipe, target: Target, corpus: Corpus, ids: Tensor, count: int, seed: int) -> list[Sample]:
    """`count` samples whose prompts start where a line of the text `ids` starts; every second one is greedy."""
    generator = torch.Generator().manual_seed(seed)
    end = corpus.tokenizer.token_to_id(END)
    samples: list[Sample] = []
    while len(samples) < count:
        size = min(BATCH, count - len(samples))
        prompt = _between(recipe.prompt_tokens, generator)  # one length a batch: no padding, hence no attention mask
        starts = line_starts(corpus, ids, prompt)
        chosen = starts[torch.randint(len(starts), (size,), generator=generator)]
        prompts = ids[chosen[:, None] + torch.arange(prompt)]  # [B, prompt]
        temperature = torch.where(torch.arange(size) % 2 == 0, 0.0, recipe.temperature)
        texts = continue_prompts(target, prompts, temperature, recipe.sample_tokens[1], generator)
        for text, heat in zip(texts, temperature.tolist(), strict=True):
            own = text[prompt : _between(recipe.sample_tokens, generator)]
            stop = (own == end).nonzero()
            length = prompt + (int(stop[0]) + 1 if len(stop) else len(own))
            samples.append(record(recipe, target, text[:length], prompt, greedy=heat == 0))
    return samples


def _between(bounds: tuple[int, int], generator: torch.Generator) -> int:
    return int(torch.randint(bounds[0], bounds[1] + 1, (), generator=generator))


def line_starts(corpus: Corpus, ids: Tensor, length: int) -> Tensor:
    """Positions after a line break from which `length` tokens follow within one topic."""
    vocabulary = [corpus.tokenizer.decode([i]) for i in range(corpus.tokenizer.get_vocab_size())]
    breaks = torch.tensor([text.endswith("\n") for text in vocabulary])[ids]
    ends = (ids == corpus.tokenizer.token_to_id(END)).long().cumsum(0)
    starts = breaks[:-length].nonzero()[:, 0] + 1
    return starts[ends[starts + length - 1] == ends[starts - 1]]


@torch.no_grad()
def continue_prompts(
    target: Target, prompts: Tensor, temperature: Tensor, length: int, generator: torch.Generator
) -> Tensor:
    """prompts [B, P] -> [B, length], drawn token by token; temperature [B], 0 = the most likely token."""
    recipe = target.recipe
    cache = torch.empty(recipe.layers, 2, len(prompts), recipe.heads, length, recipe.head_dim)
    text = new = prompts
    heat = temperature.clamp(min=1e-3)[:, None]
    while text.shape[1] < length:
        logits = target.logits(target.states(new, cache, text.shape[1] - new.shape[1])[-1][:, -1])  # [B, V]
        drawn = torch.multinomial(torch.softmax(logits / heat, dim=-1), 1, generator=generator)
        new = torch.where(temperature[:, None] > 0, drawn, logits.argmax(dim=-1, keepdim=True))
        text = torch.cat([text, new], dim=1)
    return text


@torch.no_grad()
def record(recipe: Recipe, target: Target, ids: Tensor, prompt: int, greedy: bool) -> Sample:
    stream = target.states(ids[None])
    # clone: a view would drag its whole storage into the file
    states = [stream[depth][0].bfloat16().clone() for depth in (0, *recipe.depths)]
    return Sample(ids.clone(), prompt, states, greedy)

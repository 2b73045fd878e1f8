"""A toy target that a one-layer drafter can learn, and whose layers differ: every depth has its own rotation and scale.

A text has a topic in two parts and a phase that moves on with every token; each of the three shows around another
depth: 2, 4 and 6. A token is a cluster and an
item of 16 each; the next one follows from these, the token, and sometimes the cluster of the token before, but
every fourth choice comes from a hash of the text, which no drafter can know. The greedy text of the target is the
recorded one. V = 288 tokens, of which 256 are used; H = 64; 8 layers, so depths 0 (the embedding) to 8 (before the
final norm).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

VOCAB, USED, WIDTH, LAYERS, TOPICS, COMMON = 288, 256, 64, 8, 3, 10
NORMS = (1.0, 8.0, 37.0, 66.0, 105.0, 209.0, 187.0, 140.0, 113.0)
RARE, SURPRISE = 0.2, 0.25  # of the hashed choices; of all choices
SHOWN = (2, 4, 6)  # the depth around which each part of the topic, and the phase, shows
TRIGGERS = 3  # items after which the cluster before last returns
EPS = 1e-5
Topic = tuple[int, int, int]  # two parts, and the phase of the first token


@dataclass(frozen=True)
class ToyTarget:
    """`id_of` [16, 16] token ids; `embed` [V, H] rows of norm about 1; `turns` [9, H, H] orthogonal; `topic` [3, Z, H]:
    how a state says each of the three, `choice` [V, H]: how a deep one says the next token; `clusters` [Z, 16],
    `items` [Z, 16]: what follows what; `norm` [H], `head` [V, H]."""

    id_of: Tensor
    embed: Tensor
    turns: Tensor
    topic: Tensor
    choice: Tensor
    clusters: Tensor
    items: Tensor
    norm: Tensor
    head: Tensor

    @property
    def place_of(self) -> dict[int, tuple[int, int]]:
        return {int(self.id_of[a, b]): (a, b) for a in range(16) for b in range(16)}

    @property
    def common(self) -> Tensor:
        """[160] sorted ids of the clusters that the draft vocabulary holds."""
        return self.id_of[:COMMON].flatten().sort().values


def make_target(seed: int = 0) -> ToyTarget:
    rng = torch.Generator().manual_seed(seed)

    def unit(*shape: int) -> Tensor:
        x = torch.randn(*shape, generator=rng)
        return x / x.norm(dim=-1, keepdim=True)

    id_of = (torch.randperm(USED, generator=rng)).view(16, 16)
    cluster, item = unit(16, WIDTH), unit(16, WIDTH)
    embed, choice = 0.7 * unit(VOCAB, WIDTH), 0.7 * unit(VOCAB, WIDTH)
    for table, sides in ((embed, (cluster, item)), (choice, (unit(16, WIDTH), unit(16, WIDTH)))):
        table[id_of] = 0.25 * table[id_of] + 0.7 * (sides[0][:, None] + sides[1][None])
    turns = torch.stack([torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=rng))[0] for _ in NORMS])
    turns[0] = torch.eye(WIDTH)
    clusters = torch.stack([torch.randperm(16, generator=rng) % COMMON for _ in range(TOPICS)])
    items = torch.stack([torch.randperm(16, generator=rng) for _ in range(TOPICS)])
    norm = (1 + 0.3 * torch.randn(WIDTH, generator=rng)).abs() + 0.2
    said = choice / choice.norm(dim=-1, keepdim=True)
    head = 12 * (said @ turns[LAYERS].T) / norm / WIDTH**0.5
    embed = embed.bfloat16().float()
    return ToyTarget(id_of, embed, turns, unit(3, TOPICS, WIDTH), choice, clusters, items, norm, head)


def load_target(path: Path) -> ToyTarget:
    """The target as it is stored, in float32."""
    from safetensors.torch import load_file

    stored = load_file(path)
    return ToyTarget(**{n: t.float() if t.is_floating_point() else t.long() for n, t in stored.items()})


def _hash(text: list[int]) -> int:
    value = 2166136261
    for token in [len(text), *text[-4:]]:
        value = ((value ^ token) * 16777619) & 0xFFFFFFFF
        value ^= value >> 13
    return value


def _phase(topic: Topic, place: int) -> int:
    return (topic[2] + place) % TOPICS


def follows(target: ToyTarget, places: dict[int, tuple[int, int]], topic: Topic, text: list[int]) -> int:
    """What a drafter can know: the token that the rule gives after `text`."""
    before, (a, b) = text[-2], places[text[-1]]
    one, two, _ = topic
    phase = _phase(topic, len(text) - 1)
    cluster = places[before][0] if b < TRIGGERS else (int(target.clusters[one, a]) + 3 * phase) % COMMON
    return int(target.id_of[cluster, int(target.items[two, b])])


def chosen(target: ToyTarget, places: dict[int, tuple[int, int]], topic: Topic, text: list[int]) -> int:
    """The target's greedy choice after `text` of two tokens or more."""
    value = _hash(text)
    if value % 1000 < 1000 * SURPRISE:
        value //= 1000
        rare = value % 100 < 100 * RARE
        cluster = COMMON + (value // 100) % (16 - COMMON) if rare else (value // 100) % COMMON
        return int(target.id_of[cluster, (value // 10_000) % 16])
    return follows(target, places, topic, text)


def write_text(target: ToyTarget, seed: int, length: int) -> tuple[Topic, list[int]]:
    """(topic, ids): the target's greedy text after two tokens of a prompt."""
    rng = torch.Generator().manual_seed(10_000 + seed)
    places, common = target.place_of, target.common
    one, two, three = torch.randint(TOPICS, (3,), generator=rng).tolist()
    topic = one, two, three
    text = common[torch.randint(len(common), (2,), generator=rng)].tolist()
    while len(text) < length:
        text.append(chosen(target, places, topic, text))
    return topic, text


def states(target: ToyTarget, topic: Topic, text: list[int]) -> Tensor:
    """[9, T, H] float32: the state of every depth after each token; the target's choice is in the deep ones."""
    places = target.place_of
    after = [chosen(target, places, topic, [*text[: t + 1]] if t else [text[0], text[0]]) for t in range(len(text))]
    seen, nxt = target.embed[text], target.choice[after]
    phases = [_phase(topic, t) for t in range(len(text))]
    parts = [
        target.topic[0, topic[0]].expand_as(seen),
        target.topic[1, topic[1]].expand_as(seen),
        target.topic[2, phases],
    ]
    found = [seen]
    for depth in range(1, LAYERS + 1):
        share = depth / LAYERS
        told = [max(0.0, 1 - abs(depth - peak) / 2) * parts[i] for i, peak in enumerate(SHOWN)]
        state = (1 - 0.7 * share) * seen + torch.stack(told).sum(0) + share * (0.2 + 1.4 * share**3) * nxt
        state = state / state.norm(dim=-1, keepdim=True) @ target.turns[depth].T
        found.append(NORMS[depth] * state)
    return torch.stack(found)


def last_choice(target: ToyTarget, last: Tensor) -> Tensor:
    """[T] the argmax of the head on the last state [T, H] before the final norm."""
    x = last * torch.rsqrt(last.pow(2).mean(-1, keepdim=True) + EPS) * target.norm
    return (x @ target.head.T).argmax(-1)

"""Eagle3Drafter: the forward, in the pieces that drafting and sweeps share. A wiring decides; nothing else does.

Row t holds the recorded states of position t and the embedding of token x[t+1]; its step 0 predicts x[t+2]. Shapes:
R rows, n of them in a block, H drafter width, Ht target width, A states feeding fc, D draft vocabulary, nh / nk query
and key heads of hd, values of vd. The definition is the one that speculators, SpecForge and SafeAILab's EAGLE share:

    g = fc(concat(states));  e = RMS(embed[x[t+1]]; input_layernorm);  hN = RMS(g; hidden_norm)
    y = res + o_proj(attention(concat(e, hN)));  res = hN if norm_before_residual else g
    h = y + MLP(RMS(y)), then the layers above;  logits = lm_head(RMS(h; norm))
    fed back: h, or RMS(h; norm) if norm_output

P-EAGLE feeds nothing back: at every later step each row holds the mask token and fc(mask_hidden) instead.
Knows nothing of files, samples and orderings.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from drafter.checkpoint.config import DrafterConfig, Rope
from drafter.checkpoint.vocab_map import VocabMap
from drafter.errors import CheckpointError
from drafter.model.device import Placement
from drafter.model.embedding import EmbeddingTable
from drafter.model.fusion import Fusion
from drafter.model.layer import DecoderLayer, LayerInput
from drafter.model.norm import rms_norm
from drafter.model.projection import TokenHalf, weight_of
from drafter.model.rope import Rotary, make_rotary, rotary_dims
from drafter.model.sources import Sources
from drafter.wiring import Wiring

MAX_ROTARIES = 64


class Eagle3Drafter:
    """Raises CheckpointError for a config that is not computed here, and for tensors that it needs and lacks.

    `weights` by canonical name, where and as the drafter runs; embedding, head and vocab map come from `sources`.
    """

    def __init__(
        self, config: DrafterConfig, weights: dict[str, Tensor], sources: Sources, placement: Placement
    ) -> None:
        self.config, self.placement, self._sources = config, placement, sources
        self.warnings: tuple[str, ...] = ()  # what whoever loaded the weights saw in them
        self.fusion = Fusion(weights, config)
        self.layers = [DecoderLayer(weights, index, config) for index in range(config.num_layers)]
        # ModelOpt's drafters of one state, which the target has normed, have none
        optional = not config.use_aux and "layers.0.hidden_norm.weight" not in weights
        self._hidden_norm = None if optional else weight_of(weights, "layers.0.hidden_norm.weight")
        self._norm = weights.get("norm.weight")
        self._mask = self._masked_state(weights) if config.parallel else None
        self._rotaries: dict[tuple[Rope, int], Rotary] = {}
        self._target_ids: dict[str, Tensor] = {}
        self.rotary(config.rope, 1)  # what is not computed is said before anything runs

    # ------------------------------------------------------------------ what a wiring selects

    def vocab(self, wiring: Wiring) -> VocabMap:
        return self._sources.vocab(wiring.d2t)

    def embedding(self, wiring: Wiring) -> EmbeddingTable:
        return self._sources.embedding(wiring.embedding)

    def rotary(self, rope: Rope, length: int) -> Rotary:
        """The rotation of `rope` in a pass over `length` rows, of which only `dynamic` asks."""
        key = (rope, length if rope.type == "dynamic" else 0)
        if key not in self._rotaries:
            if len(self._rotaries) >= MAX_ROTARIES:
                self._rotaries.clear()
            mla = self.config.mla
            dims = mla.qk_rope_head_dim if mla is not None else rotary_dims(rope, self.config.head_dim)
            self._rotaries[key] = make_rotary(rope, dims, length, self.config.max_positions).to(self.placement.device)
        return self._rotaries[key]

    # ------------------------------------------------------------------ in

    def token_half(self, ids: Tensor, wiring: Wiring) -> TokenHalf:
        """What the tokens `ids` [n] contribute to layer 0. Raises SampleError for ids outside of the embedding."""
        rows = self.embedding(wiring).rows(ids.cpu()).to(self.placement.device, self.placement.dtype)  # [n, H]
        return self.layers[0].attention.token_half(self._rms(rows, self.layers[0].input_norm))

    @property
    def can_share_fc(self) -> bool:
        """Whether fc's output may be summed from products per state: float32, and no norm spans all."""
        return self.placement.dtype == torch.float32 and self.fusion.is_sum

    def first_input(self, hidden: Tensor, tokens: TokenHalf, wiring: Wiring) -> LayerInput:
        """The rows before layer 0; `hidden` [n, H] is fc's output at step 0, the fed-back state later."""
        # ModelOpt's one input_layernorm norms the embedding, and inside its stock layer the hidden as well
        normed = self._rms(hidden, self.layers[0].input_norm) if wiring.double_norm else hidden
        if self._hidden_norm is not None:
            normed = self._rms(normed, self._hidden_norm)
        return LayerInput(normed if wiring.norm_before_residual else hidden, normed, tokens)

    def next_input(self, hidden: Tensor, layer: int) -> LayerInput:
        """The rows before `layer` >= 1, after h [n, H] of the layer below."""
        return LayerInput(hidden, self._rms(hidden, self.layers[layer].input_norm))

    def masked_input(self, wiring: Wiring) -> LayerInput:
        """P-EAGLE's one row of every later depth: the mask token beside fc(mask_hidden). Raises CheckpointError."""
        token, vocab = self.config.mask_token_id, self.embedding(wiring).stored.shape[0]
        if self._mask is None or token is None or not 0 <= token < vocab:
            raise CheckpointError(f"mask_token_id {token!r}", expected=f"0..{vocab - 1}, a row of the embedding")
        return self.first_input(self._mask, self.token_half(torch.tensor([token]), wiring), wiring)

    def _masked_state(self, weights: dict[str, Tensor]) -> Tensor:
        """fc(mask_hidden), [1, H]."""
        mask, width = weight_of(weights, "mask_hidden"), self.fusion.inputs * self.fusion.width
        if mask.numel() != width:
            raise CheckpointError(f"'mask_hidden' is {list(mask.shape)}", expected=f"[1, 1, {width}]")
        return self.fusion(list(mask.reshape(1, -1).split(self.fusion.width, -1)))

    # ------------------------------------------------------------------ out

    def feedback(self, hidden: Tensor, wiring: Wiring) -> Tensor:
        """What the next draft step is fed: h [n, H] before or after the final norm."""
        return self._final_norm(hidden, "norm_output") if wiring.norm_output else hidden

    def logits(self, hidden: Tensor, wiring: Wiring) -> Tensor:
        """[n, D] float32 over the draft vocabulary."""
        normed = self._final_norm(hidden, "final_norm") if wiring.final_norm else hidden
        head = self._sources.head(wiring.head, wiring.d2t, wiring.embedding)  # [D, H]
        logits = F.linear(normed, head).float()
        return logits if self.config.logit_scale == 1.0 else logits * self.config.logit_scale

    def to_target(self, draft_ids: Tensor, wiring: Wiring) -> Tensor:
        """Target token ids of `draft_ids`, through the vocab map."""
        if wiring.d2t not in self._target_ids:
            self._target_ids[wiring.d2t] = self.vocab(wiring).target_ids.to(self.placement.device)
        return self._target_ids[wiring.d2t][draft_ids]

    def _final_norm(self, hidden: Tensor, asked_by: str) -> Tensor:
        if self._norm is None:
            raise CheckpointError("no 'norm.weight'", expected=f"the final norm that {asked_by} applies")
        return self._rms(hidden, self._norm)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.config.rms_norm_eps)

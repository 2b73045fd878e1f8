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
from drafter.errors import CheckpointError, WiringError
from drafter.model.device import Placement
from drafter.model.embedding import EmbeddingTable
from drafter.model.fusion import Fusion
from drafter.model.kept import FusionKept, LayersKept
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
        self._weights = weights
        self._fusions: dict[FusionKept, Fusion] = {}
        self._stacks: dict[LayersKept, list[DecoderLayer]] = {}
        self.fusion, self.layers = self._fusion(FusionKept()), self._layers(LayersKept())
        # ModelOpt's drafters of one state, which the target has normed, have none
        optional = not config.use_aux and "layers.0.hidden_norm.weight" not in weights
        self._hidden_norm = None if optional else weight_of(weights, "layers.0.hidden_norm.weight")
        self._norm = weights.get("norm.weight")
        if config.parallel:
            self._masked_state(self.fusion)  # what it lacks is said now
        self._rotaries: dict[tuple[Rope, int], Rotary] = {}
        self._target_ids: dict[str, Tensor] = {}
        self.rotary(config.rope, 1)  # what is not computed is said before anything runs

    # ------------------------------------------------------------------ what a wiring selects

    def vocab(self, wiring: Wiring) -> VocabMap:
        return self._sources.vocab(wiring.d2t)

    def embedding(self, wiring: Wiring) -> EmbeddingTable:
        return self._sources.embedding(wiring.embedding)

    def layers_of(self, wiring: Wiring) -> list[DecoderLayer]:
        """The decoder layers with those of their tensors that the wiring reads."""
        return self._layers(LayersKept.of(wiring))

    def fusion_of(self, wiring: Wiring) -> Fusion:
        return self._fusion(FusionKept.of(wiring))

    def _layers(self, kept: LayersKept) -> list[DecoderLayer]:
        if kept not in self._stacks:
            weights, count = kept.weights(self._weights), self.config.num_layers
            self._stacks[kept] = [
                DecoderLayer(weights, i, self.config, kept.hands_on_residual(i, count)) for i in range(count)
            ]
        return self._stacks[kept]

    def _fusion(self, kept: FusionKept) -> Fusion:
        if kept not in self._fusions:
            skips = kept.skips(self._weights, self.config)
            self._fusions[kept] = Fusion(kept.weights(self._weights), kept.config(self.config), skips)
        return self._fusions[kept]

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
        layer = self.layers_of(wiring)[0]
        return layer.attention.token_half(self._rms(rows, layer.input_norm))

    @property
    def can_share_fc(self) -> bool:
        """Whether fc's output may be summed from products per state: float32, and no norm spans all."""
        return self.shares_fc(self.fusion)

    def shares_fc(self, fusion: Fusion) -> bool:
        return self.placement.dtype == torch.float32 and fusion.is_sum

    def first_input(self, hidden: Tensor, tokens: TokenHalf, wiring: Wiring) -> LayerInput:
        """The rows before layer 0; `hidden` [n, H] is fc's output at step 0, the fed-back state later."""
        # ModelOpt's one input_layernorm norms the embedding, and inside its stock layer the hidden as well
        normed = self._rms(hidden, self.layers[0].input_norm) if wiring.double_norm else hidden
        if self._hidden_norm is not None:
            normed = self._rms(normed, self._hidden_norm)
        return LayerInput(normed if wiring.norm_before_residual else hidden, normed, tokens)

    def next_input(self, hidden: Tensor, layer: DecoderLayer) -> LayerInput:
        """The rows before `layer`, one above the first, after h [n, H] of the layer below."""
        return LayerInput(hidden, self._rms(hidden, layer.input_norm))

    def masked_input(self, wiring: Wiring) -> LayerInput:
        """P-EAGLE's one row of every later depth: the mask token beside fc(mask_hidden). Raises CheckpointError."""
        token, vocab = self.config.mask_token_id, self.embedding(wiring).stored.shape[0]
        if not self.config.parallel or token is None or not 0 <= token < vocab:
            raise CheckpointError(f"mask_token_id {token!r}", expected=f"0..{vocab - 1}, a row of the embedding")
        state = self._masked_state(self.fusion_of(wiring))
        return self.first_input(state, self.token_half(torch.tensor([token]), wiring), wiring)

    def _masked_state(self, fusion: Fusion) -> Tensor:
        """fc(mask_hidden), [1, H]."""
        mask, width = weight_of(self._weights, "mask_hidden"), fusion.inputs * fusion.width
        if mask.numel() != width:
            raise CheckpointError(f"'mask_hidden' is {list(mask.shape)}", expected=f"[1, 1, {width}]")
        return fusion(list(mask.reshape(1, -1).split(fusion.width, -1)))

    # ------------------------------------------------------------------ out

    def feedback(self, hidden: Tensor, wiring: Wiring) -> Tensor:
        """What the next draft step is fed: h [n, H] before or after the final norm, or through `fc` once more.

        Raises WiringError where `fc` cannot take it.
        """
        own = self._final_norm(hidden, "norm_output", wiring) if wiring.norm_output else hidden
        if wiring.feedback != "through_fc":
            return own
        fusion = self.fusion_of(wiring)
        if fusion.width != own.shape[-1]:
            raise WiringError(
                f"feedback through_fc of a state {own.shape[-1]} wide", expected=f"{fusion.width}, as fc takes"
            )
        return fusion([own] * fusion.inputs)

    def fed_ids(self, draft_ids: Tensor, wiring: Wiring) -> Tensor:
        """The ids by which the drafts `draft_ids` are looked up in the embedding at the next step."""
        return draft_ids if wiring.fed_ids == "draft" else self.to_target(draft_ids, wiring)

    def logits(self, hidden: Tensor, wiring: Wiring) -> Tensor:
        """[n, D] float32 over the draft vocabulary."""
        normed = self._final_norm(hidden, "final_norm", wiring) if wiring.final_norm else hidden
        head = self._sources.head(wiring.head, wiring.d2t, wiring.embedding)  # [D, H]
        logits = F.linear(normed, head).float()
        return logits if self.config.logit_scale == 1.0 else logits * self.config.logit_scale

    def to_target(self, draft_ids: Tensor, wiring: Wiring) -> Tensor:
        """Target token ids of `draft_ids`, through the vocab map."""
        if wiring.d2t not in self._target_ids:
            self._target_ids[wiring.d2t] = self.vocab(wiring).target_ids.to(self.placement.device)
        return self._target_ids[wiring.d2t][draft_ids]

    def _final_norm(self, hidden: Tensor, asked_by: str, wiring: Wiring) -> Tensor:
        if self._norm is None and wiring.lost_norm == "ones":
            return self._rms(hidden, hidden.new_ones(hidden.shape[-1]))
        if self._norm is None:
            raise CheckpointError("no 'norm.weight'", expected=f"the final norm that {asked_by} applies")
        return self._rms(hidden, self._norm)

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.config.rms_norm_eps)

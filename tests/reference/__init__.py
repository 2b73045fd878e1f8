"""The plain EAGLE-3 forward, written from the definition alone: what the product's batched forward must agree with.

One row after another, float32, growing lists of keys and values; nothing shared, nothing batched, nothing clever. It
knows no file format, no config dialect and no server: weights come under canonical names, every switch is an argument.
Names for shapes: T tokens, H drafter width, Ht target width, A states that feed fc, V target vocabulary, D draft
vocabulary, K draft steps, L layers, nh query heads, nk key/value heads, hd head size, S rows seen.

Row t pairs the recorded states of token t with the embedding of x[t+1] and predicts x[t+2] at draft step 0; step k
takes x[t+1+k] and predicts x[t+2+k]. Rows are t = 0..T-2; at step k a row exists only while its input token does,
t+1+k <= T-1.
"""

from tests.reference.attention import KeyValue, Latent
from tests.reference.drafter import Chain, ReferenceDrafter, Row, predictions, to_target
from tests.reference.pieces import rms
from tests.reference.rotary import Rope, rope

__all__ = [
    "Chain",
    "KeyValue",
    "Latent",
    "ReferenceDrafter",
    "Rope",
    "Row",
    "predictions",
    "rms",
    "rope",
    "to_target",
]

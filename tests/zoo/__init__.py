"""A zoo of tiny drafters on disk: one for each producer, dialect, layout and variant, with what each must compute.

Every animal is generated from a seed with its producer's own config keys, tensor names and containers. What it must
compute is the plain reference forward, with the switches of the function that its PRODUCER trained.
"""

from tests.zoo.flat import FLAT
from tests.zoo.kinds import Animal
from tests.zoo.producers import PRODUCERS
from tests.zoo.refused import BROKEN, REFUSED, Broken, Refused

ANIMALS = FLAT + PRODUCERS

__all__ = ["ANIMALS", "BROKEN", "REFUSED", "Animal", "Broken", "Refused"]

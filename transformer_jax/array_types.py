"""Names of dimensions and special token ids, used by every module.

One letter a dimension: ``B`` batch rows, ``S`` source positions, ``T`` target
positions, ``L`` positions of either side, ``Q`` query positions, ``M`` key ("memory") positions,
``D`` model width, ``H`` heads, ``G`` heads of keys and values, ``K`` head size, ``U`` size of
values, ``F`` feed-forward width, ``V`` vocabulary, ``W`` beam width, ``N`` hypotheses of a
sentence, ``P`` forced tokens. They appear in the annotations below (``Float[Array, "B T D"]``), in
einsum strings (``'BTD,DHK->BTHK'``) and as suffixes where a shape changes from line to line
(``query_BTHK``).
"""

import numpy as np
from jax import Array as Array
from jaxtyping import Bool as Bool
from jaxtyping import Float as Float
from jaxtyping import Int as Int
from jaxtyping import PyTree as PyTree
from jaxtyping import UInt32 as UInt32

PAD_ID = 0
BOS_ID = 1
EOS_ID = 2
UNK_ID = 3
NUM_SPECIAL_IDS = 4

# Batches are numpy arrays until they are put on devices.
AnyArray = Array | np.ndarray

TokenIds = Int[AnyArray, "B L"]
AttentionMask = Bool[Array, "B Q M"]
Hidden = Float[Array, "B L D"]
Logits = Float[Array, "B T V"]

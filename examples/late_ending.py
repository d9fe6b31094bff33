"""A beam search with the logit of EOS lowered by 2; log-probabilities follow.

transformer-jax train --plugin=examples/late_ending.py --config=quickstart \
    --config.decoding.search=late_ending --workdir=runs/late
"""

import transformer_jax
from transformer_jax.array_types import EOS_ID
from transformer_jax.decoding.beam_search import plain_search


@transformer_jax.register("search", "late_ending")
def late_ending(rules):
    beam = plain_search(rules)
    return beam._replace(choose=lambda state, logits: beam.choose(state, logits.at[:, :, EOS_ID].add(-2.0)))

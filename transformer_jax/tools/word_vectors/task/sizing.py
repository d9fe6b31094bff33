"""How ``--budget`` sizes runs that learn word vectors."""

from transformer_jax.config.sizing import WORD_VECTOR_KEYS, plan_word_vectors
from transformer_jax.tasks.sizing import Sizing, plans_text

SIZING = Sizing("word_vectors:text", WORD_VECTOR_KEYS, ("skip_gram", "cbow"), plans_text(plan_word_vectors))

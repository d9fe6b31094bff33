"""The batches that a translator gives to search."""

import jax
import numpy as np
from run_settings import tiny_settings

from transformer_jax.config import MeshConfig, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.tasks.translation.objective import TranslationObjective
from transformer_jax.tasks.translation.translator import Translator
from transformer_jax.training.sharding import make_mesh


def test_search_stays_within_the_positions_of_the_model_and_rows_stay_few(tmp_path):
    config = from_dict(tiny_settings(tmp_path))
    mesh = make_mesh(MeshConfig(1, 1, 1), jax.devices()[:1])
    tokenizers = TokenizerPair(*2 * [WordTokenizer.train(["a b"], 64)])
    model = TranslationObjective(config, 8, 8, mesh).model
    sources = [[5] * 40 + [2], *[[5, 2]] * 99]
    for longest, most in ((None, 64 + 4), (66, 66), (45, 45)):
        batch, *others = Translator(model, tokenizers, config.decoding, mesh, longest).batches(sources, [])
        assert batch.inputs.shape == (32, 64) and batch.indices.tolist() == list(range(32))
        # EOS is counted on neither side.
        assert (batch.max_length, batch.limits[0], batch.limits[1]) == (most, min(41 + 4, most), 2 + 4)
        assert [each.inputs.shape for each in others] == [(32, 64), (32, 64), (8, 64)]
        assert np.concatenate([each.indices for each in others]).tolist() == [*range(32, 100), *4 * [-1]]

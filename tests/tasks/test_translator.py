"""The batches that a translator gives to search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_settings import tiny_settings

from transformer_jax.config import ConfigError, DataError, MeshConfig, from_dict
from transformer_jax.data.tokenizers import TokenizerPair
from transformer_jax.data.tokenizers.listed import WordTokenizer
from transformer_jax.decoding.constraints import Constraint
from transformer_jax.tasks.translation.translation_objective import TranslationObjective
from transformer_jax.tasks.translation.translation_task import translation_program
from transformer_jax.tasks.translation.translator import SentenceTooLong, Translator
from transformer_jax.training.sharding import make_mesh

MESH = make_mesh(MeshConfig(1, 1, 1), jax.devices()[:1])
TOKENIZERS = TokenizerPair(*2 * [WordTokenizer.train(["a b"], 64)])


def test_search_stays_within_the_positions_of_the_model_and_rows_stay_few(tmp_path):
    config = from_dict(tiny_settings(tmp_path))
    model = TranslationObjective(config, 8, 8, MESH).model
    sources = [[5] * 40 + [2], *[[5, 2]] * 99]
    for longest, most in ((None, 64 + 4), (66, 66), (45, 45)):
        batch, *others = Translator(lambda: model, TOKENIZERS, config.decoding, MESH, longest).batches(sources, ())
        width = min(64, longest or 64)
        assert batch.inputs.shape == (32, width) and batch.indices.tolist() == list(range(32))
        # EOS is counted on neither side.
        assert (batch.max_length, batch.limits[0], batch.limits[1]) == (most, min(41 + 4, most), 2 + 4)
        assert [other.inputs.shape for other in others] == [(32, width), (32, width), (8, width)]
        assert np.concatenate([other.indices for other in others]).tolist() == [*range(32, 100), *4 * [-1]]
    (batch,) = Translator(lambda: model, TOKENIZERS, config.decoding, MESH, 70).batches([[5] * 67 + [2]], ())
    assert (batch.inputs.shape, batch.max_length, batch.limits[0]) == ((1, 70), 70, 70)
    assert translation_program(model, config.decoding, 64, MESH, 66).capacities[-1][0] == 66


@pytest.mark.slow
def test_a_prefix_that_no_translation_has_is_refused(tmp_path):
    config = from_dict(tiny_settings(tmp_path))
    size = TOKENIZERS.target.vocabulary_size
    objective = TranslationObjective(config, size, size, MESH)
    has_no_a = jnp.ones(size, bool).at[TOKENIZERS.target.encode("a")[0]].set(False)
    constraint = Constraint(lambda ids, beams: (), lambda state, ids: (), lambda state: has_no_a[None, None])
    translator = Translator(lambda: objective.model, TOKENIZERS, config.decoding, MESH, 9, constraint=constraint)
    assert len(translator.prefix("a " * 8).ids) == 8
    with pytest.raises(ConfigError, match="prefix: 9 tokens leave none of the 9 positions .* at most 8 tokens"):
        translator.prefix("a " * 9)
    with pytest.raises(SentenceTooLong, match="line 2: 9 tokens and EOS exceed the 9 positions of the model"):
        translator.translate({}, ["", "a " * 8 + "a"], name="line")
    params = jax.jit(objective.init_params)(jax.random.key(0))
    assert translator.translate(params, ["b", ""], prefix=translator.prefix("b"))[0][0].text.startswith("b")
    with pytest.raises(DataError, match="line 2: no translation that begins with 'a' has a probability above 0"):
        translator.translate(params, ["", "b"], prefix=translator.prefix("a"), name="line")

"""A score of translations: their words over the words of the first references, in percent.

transformer-jax train --plugin=examples/length_ratio.py --config=quickstart --workdir=runs/ratio \
    --config.training.validation_metrics=bleu,length_ratio
"""

import transformer_jax


@transformer_jax.register("metric", "length_ratio")
def length_ratio(hypotheses, references, sources):
    words, expected = (sum(len(text.split()) for text in texts) for texts in (hypotheses, references[0]))
    return 100 * words / max(expected, 1)

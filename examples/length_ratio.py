"""A score of translations: words of the translations over words of the first references, in percent.

transformer-jax train --plugin=examples/length_ratio.py --config=quickstart --workdir=runs/ratio \
    --config.training.validation_metrics=bleu,length_ratio
"""

import transformer_jax


@transformer_jax.register("metric", "length_ratio")
def length_ratio(hypotheses, references, sources):
    return 100 * sum(len(text.split()) for text in hypotheses) / sum(len(text.split()) for text in references[0])

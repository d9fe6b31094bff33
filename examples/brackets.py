"""A toy task, parsing, as a data source: brackets are translated into the depth of each bracket.

transformer-jax train --plugin=examples/brackets.py --config=quickstart \
    --config.data.source=brackets --config.tokenizer.kind=word --config.tokenizer.joint=False \
    --config.model.tying=none --workdir=runs/brackets
"""

import random

import transformer_jax
from transformer_jax.data.sentence_pairs import SentencePair, digest


@transformer_jax.register("data_source", "brackets")
class Brackets:
    """``( ( ) ) ( )`` and ``1 2 2 1 1 1``: balanced strings of at most 24 brackets."""

    def __init__(self, config, seed):
        self.config, self.seed = config, seed
        self.source_language, self.target_language = "brackets", "depths"

    def pairs(self, split):
        draw = random.Random(f"{self.seed} {split}")
        for _ in range(self.count(split)):
            brackets, depths, depth = [], [], 0
            for left in range(2 * draw.randint(1, 12), 0, -1):
                opens = depth == 0 or (depth < left and draw.random() < 0.5)
                depths.append(str(depth + opens))
                depth += 1 if opens else -1
                brackets.append("(" if opens else ")")
            yield SentencePair(" ".join(brackets), " ".join(depths))

    def count(self, split):
        return self.config.generated_pairs if split == self.config.train_split else 100

    def fingerprint(self, split):
        return digest([f"brackets {self.seed} {split} {self.count(split)}"])

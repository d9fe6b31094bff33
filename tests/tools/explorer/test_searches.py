import numpy as np

from transformer_jax.tools.explorer.searches import TracedStep, build_tree


def step(tokens, parents, log_probs):
    best = np.array([[5, 2]] * 2), np.array([[-0.5, -1.0]] * 2)
    return TracedStep(np.array(tokens), np.array(parents), np.array(log_probs), *best)


def test_an_end_counts_only_among_the_best_as_many_as_there_are_beams():
    first = step([5, 6, 2, 7], [0, 0, 0, 0], [-0.1, -0.2, -0.3, -np.inf])
    tree = build_tree(
        [first, step([2, 8, 9, 2], [1, 0, 1, 0], [-0.4, -0.5, -0.6, -0.7])], lambda tokens: [*map(str, tokens)], 2, 1.0
    )
    assert [f"{node.token} {node.parent} {node.status}" for node in tree.nodes] == [
        *("5 -1 kept", "6 -1 kept", "2 -1 dropped"),
        *("2 1 finished", "8 0 kept", "9 1 kept", "2 0 dropped"),
    ]
    assert [tuple(node.token for node in tree.path(number)) for number in tree.hypotheses()] == [(6, 2)]
    assert np.isclose(tree.nodes[3].score, -0.4 * 6 / 7)
    assert [token.token for token in tree.first] == [5, 2]
    assert set(tree.alternatives(4)) == {(5,), (2,), (6, 5)}

"""Length buckets: a handful of static shapes with as little padding as they allow."""

import numpy as np

WIDTH_STEP = 4


def bucket_widths(lengths: np.ndarray, num_buckets: int) -> list[int]:
    """Widths, ascending, multiples of 4, that minimise the padding of ``lengths`` in ``num_buckets`` buckets; exact.

    Every length goes into the narrowest bucket that holds it, so the last width is that of the longest. Dynamic programming
    over the widths that occur: cost[k][j] = min_i cost[k-1][i] + width_j * (number of lengths in (width_i, width_j]).
    """
    candidates, counts = np.unique(-(-lengths // WIDTH_STEP) * WIDTH_STEP, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    number = len(candidates)
    cost = np.full(number + 1, np.inf)
    cost[0] = 0.0
    choices = []
    for _ in range(min(num_buckets, number)):
        # table[i, j]: the cheapest way to cover lengths up to candidate j with the last bucket starting after candidate i
        table = cost[:, None] + candidates[None, :] * (below[None, 1:] - below[:, None])
        table[np.arange(number + 1)[:, None] > np.arange(number)[None, :]] = np.inf
        choice = table.argmin(axis=0)
        choices.append(choice)
        cost = np.concatenate([[0.0], table[choice, np.arange(number)]])
    widths, last = [], number - 1
    for choice in reversed(choices):
        if last < 0:
            break
        widths.append(int(candidates[last]))
        last = int(choice[last]) - 1
    return widths[::-1]

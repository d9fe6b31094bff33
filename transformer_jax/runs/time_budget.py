"""Length of a run that has a budget of time, estimated anew from the speed of its updates."""

TOLERANCE = 0.03


def affordable_updates(
    number: int, spent: float, seconds_per_update: float, budget: float, current: int, planned: int
) -> int:
    """The number of updates at which a run ends when the budget does; at least one more, at most ``planned``.

    ``number`` updates took ``spent`` of ``budget`` seconds. The ``current`` length stays where it misses the budget by less
    than 3 %, so that noise of the clock does not move the end of the learning-rate schedule.
    """
    expected = spent + (current - number) * seconds_per_update
    if abs(expected - budget) <= TOLERANCE * budget:
        return current
    affordable = number + int((budget - spent) / max(seconds_per_update, 1e-9))
    return min(max(affordable, number + 1), planned)

"""Selection of the checkpoints to delete."""

from transformer_jax.checkpoints.format import StoredCheckpoint
from transformer_jax.config import ConfigError, Metric


def to_remove(
    stored: list[StoredCheckpoint], keep_last: int, keep_best: int, selection: Metric
) -> list[StoredCheckpoint]:
    """All but the ``keep_last`` newest and the ``keep_best`` with the best score (of equals the newest), oldest first.

    One whose score cannot be read is never among them. Raises ConfigError when nothing would be left.
    """
    sound = [each for each in stored if each.is_sound]
    scored = {each.step: each.score for each in sound if each.score is not None}
    kept: set[int] = set()
    while len(kept) < min(keep_best, len(scored)):
        kept.add(selection.best_step({step: score for step, score in scored.items() if step not in kept}))
    kept |= {each.step for each in sound[max(len(sound) - keep_last, 0) :]}
    if sound and not kept:
        raise ConfigError(
            f"prune: keep_last={keep_last} and keep_best={keep_best} leave none of {len(sound)} checkpoints, "
            f"{len(scored)} of them with a score; keep one"
        )
    return [each for each in sound if each.step not in kept]

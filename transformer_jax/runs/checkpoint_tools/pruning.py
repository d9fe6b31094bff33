"""Deleting checkpoints that nobody needs any more."""

from transformer_jax.checkpoints.format import StoredCheckpoint
from transformer_jax.config import ConfigError


def to_remove(stored: list[StoredCheckpoint], keep_last: int, keep_best: int) -> list[StoredCheckpoint]:
    """All but the ``keep_last`` newest and the ``keep_best`` with the highest score (of equals the newest), oldest first.

    One whose score cannot be read is never among them. Raises ConfigError when nothing would be left.
    """
    sound = [each for each in stored if each.is_sound]
    scored = sorted(((each.bleu, each.step) for each in sound if each.bleu is not None), reverse=True)
    kept = {step for _, step in scored[:keep_best]} | {each.step for each in sound[max(len(sound) - keep_last, 0) :]}
    if sound and not kept:
        raise ConfigError(
            f"prune: keep_last={keep_last} and keep_best={keep_best} leave none of {len(sound)} checkpoints, "
            f"{len(scored)} of them with a score; keep one"
        )
    return [each for each in sound if each.step not in kept]

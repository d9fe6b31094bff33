"""One pure training step: loss, optimizer, state, sharding."""

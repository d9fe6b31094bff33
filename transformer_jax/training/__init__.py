"""One training step, pure: loss, optimizer, state, and where each array lives on the mesh."""

"""The pieces that models are built from: attention, masks, positions, residual connections."""

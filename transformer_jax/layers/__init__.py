"""The pieces that models are built from: attention, masks, positions, feed-forward, residual connections, embedding."""

"""Trained models out to other toolkits and in from them, each way with a comparison of outputs as proof."""

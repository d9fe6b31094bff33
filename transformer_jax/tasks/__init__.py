"""Tasks: data, model, loss and evaluation of a run; tokenizers of a run; trained runs opened from their folders."""

"""Tasks: data, model, loss and evaluation of a run; its tokenizers; trained runs."""

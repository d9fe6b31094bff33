"""Word vectors: files, search, test sets, and the task that learns them."""

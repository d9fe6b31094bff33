"""Word vectors: tables, file formats, search, test sets, term counts, and the task that learns them."""

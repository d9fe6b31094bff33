"""Words as vectors: tables, file formats, search, standard test sets, counts of terms, and the task that learns vectors."""

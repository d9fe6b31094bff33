"""Words as vectors: tables of them, their file formats, search, standard test sets, and what is counted, not learned."""

"""Generated corpora: sentences of a small grammar in two languages, and random symbols."""

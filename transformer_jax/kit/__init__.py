"""Ideas that came after the paper, one a file; a file is imported when its name is first looked up."""

KIT: dict[tuple[str, str], str] = {
    ("positions", "rope"): "rope",
    ("positions", "alibi"): "alibi",
    ("positions", "t5"): "t5",
    ("positions", "shaw"): "shaw",
    ("attention", "grouped_query"): "grouped_query",
    ("attention", "multi_query"): "multi_query",
    ("attention", "qk_norm"): "qk_norm",
    ("attention", "cosine"): "cosine",
    ("attention", "soft_cap"): "soft_cap",
    ("attention", "sliding_window"): "sliding_window",
    ("attention", "talking_heads"): "talking_heads",
}
"""The module of ``transformer_jax.kit`` of each part, by its kind and name."""

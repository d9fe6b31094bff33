"""The kit: parts of published models and optimizers, registered as a plugin registers its own; a file holds one idea.

``KIT`` names them without importing them: (kind, name) to the module of this folder that registers it.
"""

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
    ("mixer", "ssru"): "ssru",
    ("mixer", "gated_linear_attention"): "gated_linear_attention",
    ("norm", "rmsnorm"): "rmsnorm",
    ("residual", "sandwich"): "sandwich",
    ("residual", "rezero"): "rezero",
    ("residual", "deepnorm"): "deepnorm",
    ("initialization", "deepnorm"): "deepnorm",
    ("feed_forward", "swiglu"): "gated_linear_units",
    ("feed_forward", "geglu"): "gated_linear_units",
    ("feed_forward", "reglu"): "gated_linear_units",
    ("feed_forward", "relu_squared"): "relu_squared",
    ("optimizer", "lion"): "lion",
    ("optimizer", "muon"): "muon",
    ("averaging", "ema"): "ema",
    ("averaging", "schedule_free"): "schedule_free",
    ("schedule", "wsd"): "wsd",
    ("loss_term", "z_loss"): "z_loss",
    ("loss_term", "r_drop"): "r_drop",
    ("feed_forward", "mixture_of_experts"): "mixture_of_experts",
    ("loss_term", "load_balance"): "mixture_of_experts",
}

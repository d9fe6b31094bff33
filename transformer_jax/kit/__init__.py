"""The kit: parts of published models and optimizers, registered as a plugin registers its own; a file holds one idea.

``KIT`` names them without importing them: (kind, name) to the module of this folder that registers it.
"""

PARTS = {
    "positions": "rope alibi t5 shaw",
    "attention": "grouped_query multi_query latent qk_norm cosine soft_cap sliding_window talking_heads softmax_one "
    "sigmoid mup",
    "mixer": "ssru gated_linear_attention",
    "norm": "rmsnorm",
    "residual": "sandwich rezero deepnorm",
    "projection": "soft_capped",
    "initialization": "deepnorm mup",
    "feed_forward": "swiglu geglu reglu relu_squared mixture_of_experts",
    "optimizer": "lion muon soap mup",
    "averaging": "ema schedule_free",
    "schedule": "wsd",
    "loss_term": "z_loss r_drop confidence_penalty unigram_smoothing multi_token load_balance",
    "corruption": "word_dropout",
    "statistic": "attention_entropy largest_logit parameter_norms gradient_norms activation_norms gradient_noise",
}
"""Names by kind."""
MODULES = {
    "attention_statistics": "attention_entropy largest_logit",
    "gated_linear_units": "swiglu geglu reglu",
    "grouped_query": "multi_query",
    "mixture_of_experts": "load_balance",
    "norms": "parameter_norms gradient_norms activation_norms",
    "soft_cap": "soft_capped",
}
"""Modules of parts that have another name."""
MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}
KIT = {(kind, name): MODULE_OF.get(name, name) for kind, names in PARTS.items() for name in names.split()}

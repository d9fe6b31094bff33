"""Kinds of memory traffic, by the names that instructions carry in a program written out by hand."""

import pytest

from transformer_jax.tools.preflight.memory_traffic import memory_traffic
from transformer_jax.tools.preflight.traffic_kinds import kind_of, traffic_by_kind

ENCODER = "jit(train_step)/transpose(jvp(Transformer.factors))/Transformer.encode/encoder_layers_3"
ATTENTION = f"{ENCODER}/self_attention"
LOSS = "jit(train_step)/jvp()/while/body/closed_call/transpose(jvp())"

PROGRAM = f"""\
%fused_pad (p: f32[100]) -> bf16[128] {{
  %p = f32[100]{{0}} parameter(0)
  %cast = bf16[100]{{0}} convert(%p), metadata={{op_name="{LOSS}/convert_element_type"}}
  ROOT %pad = bf16[128]{{0}} pad(%cast, %zero)
}}

ENTRY %main (a: f32[100]) -> f32[100] {{
  %a = f32[100]{{0}} parameter(0)
  %padded = bf16[128]{{0}} fusion(%a), kind=kLoop, calls=%fused_pad
  %scores = f32[100]{{0}} dot(%a, %a), metadata={{op_name="{ATTENTION}/cond/branch_0_fun/BHQK,BHMK->BHQM/dot_general"}}
  %moved = f32[100]{{0}} copy(%scores)
  %useless = f32[100]{{0}} copy(%a)
  ROOT %updated = f32[100]{{0}} add(%a, %moved), metadata={{op_name="jit(train_step)/jit(_where)/select_n"}}
}}
"""


def test_each_byte_is_of_one_kind():
    found = traffic_by_kind(PROGRAM)
    # The copy is one for the update, and what nothing uses and nothing names is of no kind.
    assert found == {"optimizer": 1200 + 800, "attention": 1200, "other": 800, "logits and loss": 400 + 256}
    assert list(found) == ["optimizer", "attention", "other", "logits and loss"]
    assert sum(found.values()) == memory_traffic(PROGRAM)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{ATTENTION}/self_attention.project_memory/project_heads/BLHK,DHK->BLD/dot_general", "products of layers"),
        (f"{ENCODER}/feed_forward/BLD,DF->BLF/dot_general", "products of layers"),
        (f"{ENCODER}/feed_forward/reduce_sum", "casts, biases, activations"),
        (f"{ATTENTION}/reduce_sum", "attention"),
        (f"{ATTENTION}/dot_product_attention_bwd", "attention"),
        (f"{ENCODER}/self_attention_residual.after/norm/rsqrt", "norms, residuals, dropout"),
        (
            f"{ENCODER}/self_attention_residual.after/sublayer_dropout/sublayer_dropout.mask/xor",
            "norms, residuals, dropout",
        ),
        (f"{ENCODER}/self_attention_residual.after/add", "norms, residuals, dropout"),
        (f"{LOSS}/mul", "logits and loss"),
        ("jit(train_step)/jvp(jit(_pad))/pad", "logits and loss"),
        (
            "jit(train_step)/transpose(jvp(Transformer.factors))/Transformer._embed/embedding.embed/scatter-add",
            "embeddings",
        ),
        (f"{LOSS}/dynamic_update_slice", "logits and loss"),
        ("jit(train_step)/reduce_sum", "optimizer"),
        ("jit(train_step)/while/body/transpose(jvp(row_loss))/rtd,rjd->rtj/dot_general", "scores of pairs"),
        ("jit(train_step)/while/body/scatter-add", "rows of the tables"),
        ("jit(step)/Transformer.decode_step/self_attention.step/dynamic_update_slice", "attention"),
        ("jit(step)/jit(take_along_axis)/gather", "search"),
        ("", "other"),
    ],
)
def test_kinds_by_scopes(name, kind):
    assert kind_of(name) == kind

import xml.etree.ElementTree as ElementTree

import pytest

from transformer_jax.config import resolve
from transformer_jax.tools.pictures.architecture import Block, architecture, draw_block_diagram


@pytest.mark.parametrize(
    ("recipe", "titles"),
    [
        (
            "quickstart.py",
            "embedding, + source positions, encoder layers, embedding, + target positions, decoder layers",
        ),
        ("seq2seq.py:bahdanau", "embedding, encoder, bridge, embedding, decoder"),
        ("language_model.py:quick", "embedding, + positions, decoder layers, decoder norm"),
    ],
)
def test_every_parameter_is_drawn_once(recipe, titles):
    drawn = architecture(resolve(f"configs/{recipe}", []))
    blocks = [*drawn.source, *drawn.target]
    assert ", ".join(block.title for block in blocks) == f"{titles}, output projection"
    # Stacks are counted whole; shared parameters have no number.
    numbers = [(block.repeats, block.count.partition(" ")[0].replace(",", "")) for block in blocks]
    assert sum(repeats * int(number) for repeats, number in numbers if number.isdecimal()) == drawn.parameters


def test_shapes_stacks_and_residual_connections_of_the_base_model():
    drawn = architecture(resolve("configs/transformer_base.py", []))
    encoder, decoder = drawn.source[-1], drawn.target[-2]
    assert (encoder.repeats, decoder.repeats) == (6, 6)
    assert drawn.parameters == 63_045_632
    attention = next(block for block in decoder.walk() if block.title == "cross attention")
    assert attention.details == "MultiHeadAttention  [B × T × 512]"
    assert attention.count == f"{4 * 512 * 512:,} parameters"
    # Post-norm: the sum comes before the norm.
    inner = [[inside.title for inside in block.inner] for block in encoder.inner]
    assert inner == [["self attention", "norm"], ["feed forward", "norm"]]
    assert [block.sum_before for block in decoder.inner] == [1, 1, 1]
    settings = [("model.norm", "rmsnorm"), ("model.normalization", "post")]
    other = architecture(resolve("configs/quickstart.py", settings)).source[-1]
    assert [block.sum_before for block in other.inner] == [1, 1]
    assert drawn.links == ((encoder.key, attention.key),)
    stack = [("model.scan_layers", "True"), ("model.rematerialize", "full")]
    assert architecture(resolve("configs/transformer_base.py", stack)) == drawn


def test_the_drawing_is_xml_with_its_text_escaped(tmp_path):
    box, inner, other = (Block((name,), "x & y", "", (1009, 5), {(name,): 1}) for name in ("<a>", "c", "d"))
    frame = Block(("b",), "Residual", "", (5,), {}, (inner,), repeats=3)
    path = draw_block_diagram([[box, frame], [other]], [("b", "d")], tmp_path / "a.svg", title="<t>")
    texts = [element.text or "" for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    count, details = "1 parameters", "x & y  [B × 5]"
    framed = ["3 × Residual", "", "c", count, details, "+"]
    assert texts == ["<t>", "<a>", count, details, *framed, "d", count, details]

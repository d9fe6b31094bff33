import sys

from transformer_jax.commands import flags
from transformer_jax.commands.run_flags import (
    chosen_runs,
    open_runs,
    output_path,
    require_attention,
    run_config,
    run_flags,
)
from transformer_jax.config import ConfigError
from transformer_jax.data.text_files import says_nothing, visible
from transformer_jax.files.atomic_files import require_writable_file

KINDS = ("cross", "encoder", "decoder")
PICTURES = (".png", ".pdf", ".svg")


@flags.command(
    run_flags,
    flags.string("text", None, "the sentence to translate, or the text to read", required=True),
    flags.string("translation", None, "draw for this translation instead of the model's own"),
    flags.string("output", None, "the picture (default: attention-KIND.png in the run directory)"),
    flags.integer("layer", 0, "from 1; 0 draws all, or the sharpest above 25 tokens", lower_bound=0),
    flags.integer("head", 0, "from 1; 0 draws all, and their mean", lower_bound=0),
    flags.enum("kind", None, list(KINDS), "which attention (default: the first that the model has)"),
)
def attention(values: flags.Values) -> int:
    """Draw the attention weights of a translation or of a text: all layers and heads.

    Example:
        transformer-jax attention runs/m30k --text="A man is riding a red bike."
        transformer-jax attention runs/m30k --text="Two dogs play." --kind=encoder --layer=4

    The run translates the sentence with beam search. The weights come from a forward pass over that
    translation, or over --translation=TEXT. Above 25 tokens the sharpest head and the mean of its
    layer are drawn. A language model has only attention of the kind decoder: row i predicts piece i
    of the text.
    """
    config = run_config(values)
    if says_nothing(values.text):
        raise ConfigError("--text", f"'{visible(values.text)}' has no visible character", "give a sentence")
    # Models of word vectors have no ``attention_layers``. Their task is refused below.
    layers = getattr(config.model, "attention_layers", None)
    kind = values.kind or next((kind for kind in KINDS if kind in (layers or {})), KINDS[0])
    if layers is not None:
        require_attention(config, kind, values.layer, values.head)
    path = output_path(values, f"attention-{kind}.png")
    if path.suffix not in PICTURES:
        raise ConfigError("--output", f"must end in {', '.join(PICTURES)} (got {path})")
    require_writable_file(path, "--output")
    # This imports JAX.
    from transformer_jax.tasks.texts import require_targets

    has_target = values.translation is not None
    require_targets(config, "--workdir", values.workdir, "--translation", is_set=has_target, is_optional=True)
    print("restoring the model ...", file=sys.stderr, flush=True)
    from transformer_jax.tools.pictures.attention_maps import draw_attention

    trained = open_runs(chosen_runs(values, config), values.average)
    remarks = trained.remarks("--text")
    remarks.read([values.text])
    remarks.tell()
    read = trained.task.attention_of(trained.params, values.text, values.translation)
    layers = read.of(kind)
    weights = {layer.name: layer.weights for layer in layers if values.layer in (0, layer.layer)}
    if values.head:
        weights = {f"{name} head {values.head}": layer[values.head - 1, None] for name, layer in weights.items()}
    hint = "--layer and --head draw one head alone."
    draw_attention(weights, layers[0].queries, layers[0].keys, path, title=read.title, hint=hint)
    print(f"{read.title}\n{path}")
    return 0

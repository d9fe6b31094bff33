from pathlib import Path

from transformer_jax.commands import flags


@flags.command(flags.string("workdir", None, "folder of the run", required=True))
def loss(values: flags.Values) -> int:
    """Print the last loss of a run.

    Example:
        transformer-jax loss runs/m30k
    """
    print((Path(values.workdir) / "last_loss.txt").read_text())
    return 0

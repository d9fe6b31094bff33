"""The commands of ``transformer-jax``: one thin module each, listed in ``registry.py``.

The form of a command module::

    \"\"\"One sentence: what the command does.

    Example:
        transformer-jax greet --workdir=runs/multi30k

    What else a reader of ``transformer-jax greet --help`` should know: this docstring is that help, and the flags defined
    below are listed after it.
    \"\"\"

    from absl import flags

    from transformer_jax.commands.flag_parsing import define_config_flag, resolve_config


    def define_flags(values: flags.FlagValues) -> None:
        flags.DEFINE_string("workdir", None, "folder of the run", flag_values=values, required=True)
        define_config_flag(values)  # only where the command takes --config=RECIPE and --config.KEY=VALUE


    def run(values: flags.FlagValues) -> int:
        config = resolve_config(values)  # an ExperimentConfig; first, so that its errors come before JAX is imported
        import jax  # and everything of the package that imports it
        ...
        return 0  # the exit status

Flags are defined on the ``FlagValues`` they are given, never on ``absl.flags.FLAGS``: each command has its own. The top of
a module imports only ``absl``, what is as light (``transformer_jax.config``, ``runtime.atomic_files``, ``launching``) and
``transformer_jax.commands``; whatever is heavy is imported inside ``run``, so that help and config errors appear at once.
``ConfigError``, ``DataError`` and flag errors that leave ``run`` become one message on stderr and exit status 2.
"""

"""The commands of ``transformer-jax``, listed in ``index.toml``.

A command is a function of its flags that returns the exit status. Its docstring is the help::

    @flags.command(
        flags.string("workdir", None, "folder of the run", required=True),
        flags.config,  # only if the command takes --config=RECIPE and --config.KEY=VALUE
    )
    def greet(values: flags.Values) -> int:
        \"\"\"One sentence: what the command does.

        Example:
            transformer-jax greet --config=quickstart --workdir=runs/multi30k

        More for a reader of ``transformer-jax greet --help``. The flags are listed after it.
        \"\"\"
        config = flags.resolve_config(values)  # Errors in settings come before JAX is imported.
        import jax  # And everything of the package that imports it.

At its top a module imports only light modules, such as ``transformer_jax.config`` and
``run_directory.layout``. It imports the others inside the function, so that help and config errors
appear at once. A ``ConfigError`` or ``DataError`` that leaves a command becomes one message on
stderr and exit status 2.
"""

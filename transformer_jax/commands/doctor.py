"""Check this installation and its devices: does it compute right numbers? Paste its table into a bug report.

Examples:
    transformer-jax doctor
    transformer-jax doctor --workdir=runs --config.mesh.fsdp=4

Versions, devices and memory; programs that published faults of JAX's compilers compute wrong; one update of a small
Transformer compiled and not, whole and in two parts, on the mesh of the flags; a sum over all devices; a file in the folder of
runs. Exit status 1 where something is wrong. 50 CPU seconds.
"""

from pathlib import Path

from absl import flags

from transformer_jax.commands.flag_parsing import define_override_flag, resolve_config


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_string("workdir", "runs", "folder of runs, where a file is written and removed", flag_values=values)
    define_override_flag(values)


def run(values: flags.FlagValues) -> int:
    """Prints a row as soon as it is known; 1 where one of them is wrong."""
    from transformer_jax.runtime.atomic_files import require_local
    from transformer_jax.tools.preflight.health import checks, small_config

    require_local(values.workdir, "--workdir")
    config = resolve_config(values, small_config())
    wrong = 0
    for check in checks(config, Path(values.workdir)):
        print(f"{check.name:<28} {'ok' if check.is_right else 'WRONG':<6} {check.detail}", flush=True)
        wrong += not check.is_right
    print(f"\n{wrong} of the checks failed." if wrong else "\nEverything that was checked is right.")
    return 1 if wrong else 0

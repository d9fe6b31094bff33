"""Checks of devices: ``preflight``, ``calibrate`` and ``doctor``."""

import sys
from pathlib import Path

from transformer_jax.commands import flags
from transformer_jax.files.atomic_files import require_local, require_writable_file, write_whole

PROGRAMS = "train_step", "decode_step", "search"


@flags.command(
    flags.config,
    flags.string("topology", None, "v5e:16x16, v5p:4x4x8, v6e:4x4, h100:2x8, a100:8, cpu:8, ...", required=True),
    flags.integer("length", 0, "positions of a row on either side; 0: as long as rows can be", lower_bound=0),
    flags.enum("program", "train_step", PROGRAMS, "training step, one step of decoding, or whole search of a batch"),
    flags.string("calibration", "", "file of speeds measured by calibrate, used in place of data-sheet figures"),
)
def preflight(values: flags.Values) -> int:
    """Compile a training step for absent devices: does it fit, how fast can it be.

    Examples:
        transformer-jax preflight --config=transformer_base --topology=v5e:16x16 \
            --config.batching.row_multiple=256 --config.batching.tokens_per_update=262144
        transformer-jax preflight --config=quickstart --topology=cpu:8 \
            --config.batching.row_multiple=8
        transformer-jax preflight --config=transformer_base --topology=h100:1 --program=search \
            --calibration=measured.json

    Topologies: a slice of v4, v5e, v5p or v6e, such as v5e:4x8, or several of a kind (not v4),
    2xv5e:4x8 (needs libtpu: pip install libtpu), a100, h100, h200 or b200, h100:8 or hosts x GPUs,
    h100:2x8 (needs the extra preflight-gpu), or cpu:N. No data is needed, and nothing is run: times
    are estimates from data sheets of the chips, or from speeds measured by calibrate. Exit status 1
    if the program does not fit. --program=search is the whole search of a full batch.
    """
    config = flags.resolve_config(values)
    from transformer_jax.tools.preflight.calibration import calibrated, load_calibration
    from transformer_jax.tools.preflight.chips import naming_missing_wheels, open_topology
    from transformer_jax.tools.preflight.compiled_program import compile_program
    from transformer_jax.tools.preflight.decoding import compile_decoding
    from transformer_jax.tools.preflight.preflight_report import report

    with naming_missing_wheels():
        topology = open_topology(values.topology)
        if values.calibration:
            topology = calibrated(topology, load_calibration(Path(values.calibration).expanduser()))
        if values.program == "train_step":
            program = compile_program(config, topology, values.length)
        else:
            program = compile_decoding(config, topology, values.length, is_search=values.program == "search")
    print(report(program, topology, config))
    return 0 if program.fits else 1


@flags.command(flags.string("output", None, "file to write", required=True))
def calibrate(values: flags.Values) -> int:
    """Measure the devices of this machine, in a minute, for the estimates of preflight.

    Examples:
        transformer-jax calibrate --output=measured.json

    The network between hosts is not measured: preflight uses its data sheet.
    """
    import jax

    from transformer_jax.tools.preflight.calibration import measure, to_json

    path = require_writable_file(values.output, "--output")
    text = to_json(measure(jax.local_devices()))
    write_whole(path, text)
    print(text, end="")
    return 0


@flags.command(
    flags.string("workdir", "runs", "folder of runs, where a file is written and removed"),
    flags.distributed,
    flags.overrides,
)
def doctor(values: flags.Values) -> int:
    """Check that this installation and its devices compute correctly.

    Examples:
        transformer-jax doctor --workdir=runs --config.mesh.fsdp=4
        srun transformer-jax doctor --distributed --workdir=/shared/runs

    The table, for a bug report, has versions, devices and memory, one update of a small Transformer
    compiled and not compiled, whole and in two parts, on the mesh of the flags, a sum over all
    devices, and a file in the folder of runs. Exit status 1 if a check fails. Takes 50 CPU seconds.

    With --distributed every process makes the checks, the mesh spans the devices of all, and all
    must see the same folder of runs. Process 0 prints one table with the processes that fail. If
    one fails, all end with status 1.
    """
    if not values.distributed:
        return _diagnosed(values)
    from transformer_jax.runtime.process_group import ending_with_others

    with ending_with_others():
        return _diagnosed(values)


def _diagnosed(values: flags.Values) -> int:
    from transformer_jax.runtime.distributed import require_same, say
    from transformer_jax.runtime.process_group import join_processes
    from transformer_jax.tools.preflight.health import checks, small_config

    require_local(values.workdir, "--workdir")
    config = flags.resolve_config(values, small_config())
    if values.distributed:
        join_processes()
        require_same(
            repr(config), "--distributed", "the processes were started with different flags", "use the same command"
        )
    wrong = 0
    for check in checks(config, Path(values.workdir)):
        say(f"{check.name:<28} {'ok' if check.is_right else 'WRONG':<6} {check.detail}")
        sys.stdout.flush()
        wrong += not check.is_right
    say(f"\n{wrong} of the checks failed." if wrong else "\nAll checks passed.")
    return 1 if wrong else 0

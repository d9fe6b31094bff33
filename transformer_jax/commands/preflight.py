"""Compile the training step of a recipe for devices that are not here, and say whether it fits and how fast it can be.

Examples:
    transformer-jax preflight --config=transformer_base --topology=v5e:16x16 --config.mesh.fsdp=8
    transformer-jax preflight --config=transformer_base --topology=h100:2x8
    transformer-jax preflight --config=quickstart --topology=cpu:8 --config.batching.row_multiple=8
    transformer-jax preflight --config=transformer_base --topology=v5e:4x4 --search
    transformer-jax preflight --config=transformer_base --topology=h100:1 --program=search --calibration=measured.json

Topologies: any slice of v4, v5e, v5p or v6e, such as v5e:4x8, or several of a kind but v4, 2xv5e:4x8 (needs libtpu: pip install
libtpu); a100, h100, h200 or b200, h100:8 or hosts x GPUs, h100:2x8 (needs the extra preflight-gpu); or cpu:N.
No data is needed: vocabularies are taken as large as the settings allow. Exit status 1 when it does not fit. The times are
estimates, from public figures of the chips or from those that calibrate measured, as if computing, memory and interconnect
overlapped perfectly; nothing is run.

--program: the training step, one step of decoding, or the whole search of a full batch of the longest inputs.

--search begins with the mesh of the recipe. Of each mesh it tries the recipe's tokens with nothing computed twice; where they
fit, two and four times as many, where not, rematerialization, then half and a quarter of the tokens.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from transformer_jax.commands.flag_parsing import define_config_flag, resolve_config
from transformer_jax.config import ConfigError, ExperimentConfig

if TYPE_CHECKING:
    from transformer_jax.tools.preflight.chips import Topology

BEST = 3
PROGRAMS = "train_step", "decode_step", "search"


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    define_config_flag(values)
    flags.DEFINE_string(
        "topology",
        None,
        "v5e:16x16, v5p:4x4x8, v6e:4x4, v4:4x4x4, h100:2x8, a100:8, cpu:8, ...",
        flag_values=values,
        required=True,
    )
    flags.DEFINE_integer(
        "length", 0, "positions of a row on either side; 0: as long as rows can be", flag_values=values, lower_bound=0
    )
    flags.DEFINE_enum(
        "program",
        "train_step",
        PROGRAMS,
        "the training step; one step of decoding; the whole search of a batch",
        flag_values=values,
    )
    flags.DEFINE_boolean("search", False, "try meshes, tokens and rematerialization", flag_values=values)
    flags.DEFINE_integer("search_limit", 12, "most variants to compile", flag_values=values, lower_bound=1)
    flags.DEFINE_string(
        "calibration", "", "speeds that calibrate measured, for those of data sheets", flag_values=values
    )
    flags.DEFINE_boolean("json", False, "print JSON", flag_values=values)


def run(values: flags.FlagValues) -> int:
    """Compiles and prints; 1 when nothing fits."""
    from transformer_jax.tools.preflight.chips import missing_wheels_named

    config = resolve_config(values)
    with missing_wheels_named():
        return _search(values, config) if values.search else _compile(values, config)


def _open(values: flags.FlagValues) -> "Topology":
    from transformer_jax.tools.preflight.calibration import calibrated, load_calibration
    from transformer_jax.tools.preflight.chips import open_topology

    topology = open_topology(values.topology)
    return calibrated(topology, load_calibration(Path(values.calibration))) if values.calibration else topology


def _compile(values: flags.FlagValues, config: ExperimentConfig) -> int:
    from transformer_jax.tools.preflight.decoding import compile_decoding
    from transformer_jax.tools.preflight.program import compile_program
    from transformer_jax.tools.preflight.report import report, to_json

    topology = _open(values)
    if values.program == "train_step":
        program = compile_program(config, topology, values.length)
    else:
        program = compile_decoding(config, topology, values.length, is_search=values.program == "search")
    print(json.dumps(to_json(program, topology), indent=1) if values.json else report(program, topology))
    return 0 if program.fits else 1


def _search(values: flags.FlagValues, config: ExperimentConfig) -> int:
    from transformer_jax.tools.preflight.program import Program, positions_per_second
    from transformer_jax.tools.preflight.report import SUMMARY_HEAD, report, summary
    from transformer_jax.tools.preflight.search import flags_of, search

    if values.json:
        raise ConfigError("--json: a search prints a table; leave out --json or --search")
    if values.program != "train_step":
        raise ConfigError("--program: --search tries training steps; leave out one of the two")
    topology = _open(values)
    chip = topology.chip
    if chip is None:
        raise ConfigError(
            f"--search: nothing can be compared, the speed of {topology.name} is not known; give a TPU slice or GPUs"
        )
    print(SUMMARY_HEAD)

    def on_result(variant: ExperimentConfig, program: Program) -> None:
        print(summary(program, chip, variant), flush=True)

    fitting = search(config, topology, values.length, values.search_limit, on_result)
    if not fitting:
        print("\nNo variant that was tried fits; try a larger --search_limit or a larger slice.")
        return 1
    best = sorted(fitting, key=lambda each: -positions_per_second(each[1], chip))[:BEST]
    print("\nThe best, by target positions/s:")
    for variant, program in best:
        print(f"  {positions_per_second(program, chip):,.0f}: {flags_of(variant)}")
    print(f"\n{report(best[0][1], topology)}")
    return 0

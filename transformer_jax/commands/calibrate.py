"""Measure the devices here, in a minute, for the estimates of preflight.

Examples:
    transformer-jax calibrate --output=measured.json
    transformer-jax preflight --config=transformer_base --topology=h100:8 --calibration=measured.json

Matrix products of bfloat16 and float32, reading and writing of memory, and sums over the devices along each axis of their
interconnect, each as one device does it. The network between hosts is not measured: preflight keeps the data sheet's.
"""

from pathlib import Path

from absl import flags


def define_flags(values: flags.FlagValues) -> None:
    """The flags of this command."""
    flags.DEFINE_string("output", None, "file to write", flag_values=values, required=True)


def run(values: flags.FlagValues) -> int:
    """Measures, prints and writes."""
    import jax

    from transformer_jax.tools.preflight.calibration import measure, to_json

    text = to_json(measure(jax.local_devices()))
    Path(values.output).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0

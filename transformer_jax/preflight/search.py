"""Which mesh, batch and rematerialisation promise the most tokens a second, found by compiling them."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig, TransformerConfig
from transformer_jax.preflight.chips import Topology
from transformer_jax.preflight.program import Program, compile_program

REMATERIALISATIONS = ("none", "keep_projections", "full")
TOKEN_FACTORS = (4, 2, 1)


def search(
    config: ExperimentConfig,
    topology: Topology,
    length: int,
    limit: int,
    tell: Callable[[ExperimentConfig, Program], None],
) -> list[tuple[ExperimentConfig, Program]]:
    """Compiles up to ``limit`` variants of ``config`` and returns those that fit; ``tell`` hears of each at once.

    Of one mesh and batch the rematerialisations are tried from none to full, up to the first that fits: more of it is slower.
    """
    fitting: list[tuple[ExperimentConfig, Program]] = []
    done: set[tuple[MeshConfig, int]] = set()
    compiled = 0
    for variant in variants(config, len(topology.devices)):
        key = variant.mesh, variant.batching.tokens_per_update
        if compiled == limit or key in done:
            continue
        try:
            program = compile_program(variant, topology, length)
        except ConfigError:
            # A size of the model that this mesh does not divide.
            continue
        compiled += 1
        tell(variant, program)
        if program.fits:
            done.add(key)
            fitting.append((variant, program))
    return fitting


def variants(config: ExperimentConfig, devices: int) -> Iterator[ExperimentConfig]:
    """Those worth a try, the likeliest first: little splitting of layers before much, large batches before small ones."""
    shares = [share for share in (1, 2, 4, 8, 16, 32, 64, 128, 256) if devices % share == 0]
    meshes = [
        MeshConfig(data=devices // fsdp // tensor, fsdp=fsdp, tensor=tensor)
        for tensor, fsdp in itertools.product([share for share in shares if share <= 8], shares)
        if devices % (fsdp * tensor) == 0
    ]
    meshes.sort(key=lambda mesh: (mesh.tensor, abs(math.log2(mesh.fsdp) - 3)))
    for mesh, factor, policy in itertools.product(meshes, TOKEN_FACTORS, REMATERIALISATIONS):
        if not isinstance(config.model, TransformerConfig) and policy != "none":
            continue
        groups = mesh.data * mesh.fsdp * config.batching.accumulation_steps
        rows = math.lcm(config.batching.row_multiple, groups)
        model = (
            replace(config.model, rematerialise=policy) if isinstance(config.model, TransformerConfig) else config.model
        )
        batching = replace(
            config.batching, row_multiple=rows, tokens_per_update=factor * config.batching.tokens_per_update
        )
        try:
            yield replace(config, mesh=mesh, model=model, batching=batching)
        except ConfigError:
            continue

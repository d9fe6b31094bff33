"""Search for the mesh, batch size and rematerialization with the highest estimated speed, by compiling variants."""

import math
from collections.abc import Callable
from dataclasses import replace

from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig
from transformer_jax.config.optimization import mesh_sizes
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.program import Program, batch_size, compile_program

# Factors of the tokens, and rematerialization policies.
MORE_TOKENS = ((2.0, "none"), (4.0, "none"))
LESS_MEMORY = ((1.0, "keep_projections"), (1.0, "full"), (0.5, "full"), (0.25, "full"))
LARGEST_TENSOR = 8


def search(
    config: ExperimentConfig,
    topology: Topology,
    length: int,
    limit: int,
    on_result: Callable[[ExperimentConfig, Program], None],
) -> list[tuple[ExperimentConfig, Program]]:
    """Compiles up to ``limit`` variants of ``config``, calls ``on_result`` after each, and returns the variants that fit.

    Raises the first ConfigError if none could be compiled.
    """
    tried: list[tuple[ExperimentConfig, Program]] = []
    errors: list[ConfigError] = []
    less_memory = [each for each in LESS_MEMORY if config.model.has_attention_backend or each[0] < 1]

    def fits(mesh: MeshConfig, factor: float, policy: str) -> bool:
        chosen = variant(config, mesh, factor, policy)
        program = compile_program(chosen, topology, length)
        tried.append((chosen, program))
        on_result(chosen, program)
        return program.fits

    for mesh in meshes(config.mesh, len(topology.devices)):
        if len(tried) == limit:
            break
        try:
            # If the recipe's batch fits, try larger ones until one does not; else try to save memory until one fits.
            first = fits(mesh, 1.0, "none")
            for factor, policy in MORE_TOKENS if first else less_memory:
                if len(tried) == limit or fits(mesh, factor, policy) != first:
                    break
        except ConfigError as error:
            # The mesh does not divide a size of the model, or the batch has too few tokens.
            errors.append(error)
    if errors and not tried:
        raise errors[0]
    return [(chosen, program) for chosen, program in tried if program.fits]


def meshes(asked: MeshConfig, devices: int) -> list[MeshConfig]:
    """Meshes to try, all with the recipe's ``context``: the recipe's first, then by increasing ``tensor``.

    Raises ConfigError if ``context`` does not divide the number of devices.
    """
    context = mesh_sizes(asked, devices, "of the topology")["context"] if asked.context == -1 else asked.context
    if devices % context:
        raise ConfigError(f"mesh.context: {context} does not divide the {devices} devices of the topology")
    sizes = [size for size in range(1, devices + 1) if devices % size == 0]
    found = [
        MeshConfig(data=devices // (fsdp * context * tensor), fsdp=fsdp, context=context, tensor=tensor)
        for tensor in sizes
        for fsdp in sizes
        if tensor <= LARGEST_TENSOR and devices % (fsdp * context * tensor) == 0
    ]

    def is_asked(mesh: MeshConfig) -> bool:
        return all(wanted in (-1, size) for wanted, size in zip(asked.sizes.values(), mesh.sizes.values(), strict=True))

    return sorted(found, key=lambda mesh: (not is_asked(mesh), mesh.tensor, abs(math.log2(mesh.fsdp) - 3)))


def variant(config: ExperimentConfig, mesh: MeshConfig, factor: float, policy: str) -> ExperimentConfig:
    """The recipe on a mesh, with ``factor`` times the tokens and, if the model supports it, a rematerialization ``policy``.

    Rows divide over the mesh. Raises ConfigError if the tokens are too few for a batch.
    """
    batching, model = config.batching, config.model
    rows = math.lcm(batching.row_multiple, mesh.data * mesh.fsdp * batching.accumulation_steps)
    tokens = int(factor * max(batching.tokens_per_update, rows * batch_size(config)[1]))
    if model.has_attention_backend:
        model = replace(model, rematerialize=policy)
    batching = replace(batching, row_multiple=rows, tokens_per_update=tokens)
    return replace(config, mesh=mesh, model=model, batching=batching)


def flags_of(config: ExperimentConfig) -> str:
    """The flags that turn the recipe into this variant."""
    batching = config.batching
    settings: dict[str, object] = {
        **{f"mesh.{axis}": size for axis, size in config.mesh.sizes.items()},
        "batching.tokens_per_update": batching.tokens_per_update,
        "batching.row_multiple": batching.row_multiple,
    }
    if config.model.has_attention_backend:
        settings["model.rematerialize"] = config.model.rematerialize
    return " ".join(f"--config.{name}={value}" for name, value in settings.items())

"""Search for the mesh, batch and rematerialization that promise the most tokens a second, by compiling them."""

import math
from collections.abc import Callable
from dataclasses import replace

from transformer_jax.config import ConfigError, ExperimentConfig, MeshConfig
from transformer_jax.config.optimization import mesh_sizes
from transformer_jax.tools.preflight.chips import Topology
from transformer_jax.tools.preflight.program import Program, batch_size, compile_program

FIRST = (1.0, "none")
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
    """Compiles up to ``limit`` variants of ``config`` and returns those that fit; ``on_result`` is called with each at once.

    Raises ConfigError, the first that there was, when not one could be compiled.
    """
    fitting: list[tuple[ExperimentConfig, Program]] = []
    errors: list[ConfigError] = []
    compiled = 0
    for mesh in meshes(config.mesh, len(topology.devices)):
        fits: list[bool] = []
        try:
            while compiled < limit and (choice := next_choice(fits, config.model.has_attention_backend)):
                variant = varied(on_mesh(config, mesh), *choice)
                program = compile_program(variant, topology, length)
                compiled += 1
                on_result(variant, program)
                fits.append(program.fits)
                if program.fits:
                    fitting.append((variant, program))
        except ConfigError as error:
            # A size of the model that this mesh does not divide, or too few tokens for the rows of a batch.
            errors.append(error)
    if errors and not compiled:
        raise errors[0]
    return fitting


def next_choice(fits: list[bool], can_rematerialize: bool) -> tuple[float, str] | None:
    """The next factor of the tokens and rematerialization to try, given which tries on one mesh ``fits``; None at the end.

    If the recipe's tokens fit, more of them, while they fit; if not, what needs less memory, until it fits.
    """
    if not fits:
        return FIRST
    less = LESS_MEMORY if can_rematerialize else tuple(each for each in LESS_MEMORY if each[0] < 1)
    rest = MORE_TOKENS if fits[0] else less
    is_over = fits[-1] != fits[0] or len(fits) > len(rest)
    return None if is_over else rest[len(fits) - 1]


def meshes(asked: MeshConfig, devices: int) -> list[MeshConfig]:
    """Those worth a try, the likeliest first: that of the recipe, then little splitting of layers before much.

    All split sequences as the recipe does. Raises ConfigError when so many devices cannot.
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


def on_mesh(config: ExperimentConfig, mesh: MeshConfig) -> ExperimentConfig:
    """With rows that divide over the mesh, and at least as many tokens as those rows have."""
    batching = config.batching
    rows = math.lcm(batching.row_multiple, mesh.data * mesh.fsdp * batching.accumulation_steps)
    tokens = max(batching.tokens_per_update, rows * batch_size(config)[1])
    return replace(config, mesh=mesh, batching=replace(batching, row_multiple=rows, tokens_per_update=tokens))


def varied(config: ExperimentConfig, factor: float, policy: str) -> ExperimentConfig:
    """With ``factor`` times the tokens; ``policy`` is for models that can compute again.

    Raises ConfigError when too few tokens are left for the rows of a batch.
    """
    tokens = int(factor * config.batching.tokens_per_update)
    model = config.model
    if model.has_attention_backend:
        model = replace(model, rematerialize=policy)
    return replace(config, model=model, batching=replace(config.batching, tokens_per_update=tokens))


def flags_of(config: ExperimentConfig) -> str:
    """Flags that turn the recipe into this variant."""
    batching = config.batching
    settings: dict[str, object] = {
        **{f"mesh.{axis}": size for axis, size in config.mesh.sizes.items()},
        "batching.tokens_per_update": batching.tokens_per_update,
        "batching.row_multiple": batching.row_multiple,
    }
    if config.model.has_attention_backend:
        settings["model.rematerialize"] = config.model.rematerialize
    return " ".join(f"--config.{name}={value}" for name, value in settings.items())

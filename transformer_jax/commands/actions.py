"""Actions of a command, such as ``ls`` of ``checkpoint``."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from transformer_jax.commands.flags import Values
from transformer_jax.config import ConfigError
from transformer_jax.errors import nearest


class Action(NamedTuple):
    """An action of a command: its function, the text and numbers of its arguments, its flags."""

    do: Callable[[Values, list[str]], None]
    takes: str
    min_arguments: int
    max_arguments: int
    flags: tuple[str, ...]


def chosen_action(
    command: str, actions: Mapping[str, Action], values: Values, shared: Sequence[str] = ()
) -> tuple[Action, list[str]]:
    """Return the action that the first argument names, and its arguments.

    ``shared``: flags that every action takes. Raises ConfigError at an unknown action, a wrong
    number of arguments, or a flag of another action.
    """
    name, *arguments = values.arguments or [""]
    if name not in actions:
        near = nearest(name, actions, cutoff=0.5)
        hint = f"did you mean {near}?" if near else f"give one of {', '.join(actions)}"
        raise ConfigError(command, f"{name!r} is not an action", hint)
    action = actions[name]
    if not action.min_arguments <= len(arguments) <= action.max_arguments:
        raise ConfigError(f"{command} {name}", f"takes {action.takes}, found {' '.join(arguments) or 'none'}")
    of_others = {flag for other in actions.values() for flag in other.flags} - set(action.flags)
    for flag in sorted(of_others):
        if flag in values.present:
            takes = ", ".join(f"--{name}" for name in (*shared, *action.flags)) or "no flags"
            raise ConfigError(f"--{flag}", f"{command} {name} does not take it", f"it takes {takes}")
    return action, arguments

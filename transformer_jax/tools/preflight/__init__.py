"""Memory, communication and speed of programs for absent devices; checks of an installation."""

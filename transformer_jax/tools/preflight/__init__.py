"""Memory, communication and speed of programs for absent devices, and checks of an installation."""

"""Memory, communication and speed of programs compiled for devices that may be absent, and checks of an installation."""

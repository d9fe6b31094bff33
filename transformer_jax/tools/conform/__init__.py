"""The command ``conform`` checks in small models that an idea keeps the project's promises."""

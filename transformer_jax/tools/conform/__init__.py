"""Checks that an idea keeps the promises of the project, in small models: the properties of ``conform``."""

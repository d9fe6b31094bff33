"""Packages of the distribution: those of ``transformer_jax``, and ``configs/`` as ``transformer_jax.recipes``."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["transformer_jax", "transformer_jax.*"]), "transformer_jax.recipes"],
    package_dir={"transformer_jax.recipes": "configs"},
)

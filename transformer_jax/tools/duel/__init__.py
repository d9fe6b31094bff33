"""Duels: a base and ideas trained at equal budgets with paired seeds, and tests of the differences."""

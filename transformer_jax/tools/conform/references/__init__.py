"""References of the kit in NumPy: the function ``NAME`` of the module of a kind is the reference of the part of this name."""

"""References of the kit in NumPy. In the module of a kind, functions have the names of parts."""

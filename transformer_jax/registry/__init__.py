"""Kinds of parts, parts by name, and the indexes of the folders that bring them."""

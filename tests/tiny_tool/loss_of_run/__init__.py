"""The last loss of a run: a tool of another distribution."""

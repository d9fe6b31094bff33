"""What a process sets up before it computes: the allocator, and what its devices can do."""

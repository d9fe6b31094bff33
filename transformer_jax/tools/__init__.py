"""What works beside the core, which imports none of it: each tool uses what the core documents as public."""

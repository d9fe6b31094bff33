"""Tools beside the core. The core imports none of them; they use what the core documents as
public.
"""

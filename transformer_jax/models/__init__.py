"""Sequence models behind one interface: encode, teacher-forced decode, init_cache, decode_step."""

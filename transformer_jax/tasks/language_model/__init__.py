"""Language modeling: a decoder-only Transformer on plain text, measured in bits per byte."""

"""Finished runs compared: tables, curves, significance; as text, Markdown, CSV and HTML."""

"""Reports that compare runs: tables, curves and significance as text, Markdown, CSV and HTML."""

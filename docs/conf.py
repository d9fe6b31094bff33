"""The site of these pages: Sphinx reads Markdown and notebooks as they are, from the root, so that all links within the repository hold.

make docs, or: python -m sphinx -W --keep-going -c docs . build/site
"""

project = "transformer_jax"
extensions = ["myst_nb"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*.ipynb", "experiments/**.md"]
exclude_patterns = ["build", "runs", ".venv*"]
myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"
html_theme = "furo"
html_title = "transformer_jax"
suppress_warnings = ["toc.not_included"]
PARTS = {
    "Begin": ["getting_started", "data", "python", "tour", "first_hour"],
    "Train": ["training", "settings", "run_directory", "sweeps"],
    "Use": ["evaluation", "explorer", "interop"],
    "More models": ["language_models", "word_vectors"],
    "Large scale": ["clusters", "preflight", "roofline"],
    "Extend": ["extending"],
    "Inside": ["annotated_transformer", "annotated_attention", "figures", "architecture", "paper_to_code", "benchmarks", "security"],
}


def with_contents(app, name, source):
    """The README leads to every page."""
    if name == root_doc:
        for part, pages in PARTS.items():
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n" + "\n".join(f"docs/{page}" for page in pages) + "\n```\n"


def setup(app):
    app.connect("source-read", with_contents)

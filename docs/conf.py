"""The site of the documentation: Sphinx, with the repository as its source, so that every link within it is one of the site.

make docs
"""

from typing import Any

project = html_title = "transformer_jax"
extensions = ["myst_nb"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/tour.ipynb", "experiments/**/*.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"
html_theme = "furo"
# Experiments are reached from benchmarks.md; tables that programs write begin where they are shown.
suppress_warnings = ["toc.not_included", "myst.header"]
CONTENTS = {
    "Begin": "getting_started data python tour first_hour",
    "Train": "training settings run_directory sweeps",
    "Use": "evaluation explorer interop",
    "More models": "language_models word_vectors parsing",
    "Large scale": "clusters preflight roofline",
    "Extend": "extending kit duel",
    "Inside": "annotated_transformer annotated_attention figures architecture paper_to_code benchmarks security",
    "Project": "../CONTRIBUTING ../CHANGELOG",
}


def with_contents(app: Any, page: str, source: list[str]) -> None:
    """Adds the contents of the side bar to the README."""
    for part, pages in CONTENTS.items() if page == root_doc else ():
        entries = "\n".join(f"docs/{name}".replace("docs/../", "") for name in pages.split())
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n{entries}\n```\n"


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.connect("source-read", with_contents)

"""The site of the documentation: Sphinx, with the repository as its source, so that every link
within it is one of the site.

make docs
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode, math_block, section, title
from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
project = html_title = "transformer_jax"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/*/*.md", "docs/learn/tour.ipynb", "experiments/**/*.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "off"
html_theme = "furo"
html_show_copyright = False
html_math_renderer = "mathml"
html_static_path = html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("search.js"))
# Written by the Makefile.
LIVE_PAGE = Path(__file__).resolve().parent.parent / "build" / "extra" / "live.html"
html_extra_path = [str(LIVE_PAGE.parent)] if LIVE_PAGE.is_file() else []
# Protocols and named tuples: their fields in the order of the source, without the constructors that
# Python makes.
autodoc_default_options = {"member-order": "bysource", "exclude-members": "__init__, __new__"}
autodoc_class_signature = "separated"
autodoc_typehints = "signature"
# Experiments are reached from benchmarks.md; tables that programs write begin where they are shown.
suppress_warnings = ["toc.not_included", "myst.header"]
CONTENTS = {
    "Begin": "getting_started first_model data text_in_text_out python learn/tour",
    "Learn": "learn/course learn/lesson learn/annotated_transformer learn/annotated_attention learn/annotated_counting_words "
    "learn/glossary",
    "Train": "training settings choosing_a_size sweeps",
    "Use": "evaluation explorer low_bleu troubleshooting other_toolkits",
    "More models": "language_models word_vectors parsing",
    "Large scale": "accelerators preflight clusters",
    "Extend": "extending extending_models extending_training extending_tasks debugging kit duel api",
    "Code": "paper_to_code benchmarks ../CONTRIBUTING ../CHANGELOG",
    "Internals": "architecture attention_backends batches token_stores object_stores job_files faults security conform "
    "roofline explorer interop",
}


def with_contents(app: Any, page: str, source: list[str]) -> None:
    """Add the contents of the side bar and the live page to the README. Search leaves out tables of
    results and changes.
    """
    if "/results/" in page or page == "CHANGELOG":
        source[0] = f"---\nnosearch: true\n---\n{source[0]}"
    if page == "docs/learn/lesson" and LIVE_PAGE.is_file():
        source[0] = re.sub(r"`(live\.html)(#[^`]+)`", r'<a href="../../\1\2">open</a>', source[0])
    if page == root_doc:
        source[0] = re.sub(r"<a href=.*?</a>", live_picture(), source[0], count=1, flags=re.DOTALL)
    for part, pages in CONTENTS.items() if page == root_doc else ():
        folder = "docs/internals" if part == "Internals" else "docs"
        entries = "\n".join(f"{folder}/{name}".replace("docs/../", "") for name in pages.split())
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {part}\n\n{entries}\n```\n"


def live_picture() -> str:
    """Return the first picture of the README, which opens the live page of the site."""
    target = f":target: {LIVE_PAGE.name}\n" if LIVE_PAGE.is_file() else ""
    words = ":alt: A trained model in the browser; a head is switched off, and the translation changes\n"
    pictures = [
        f"```{{image}} docs/figures/live{ending}.gif\n:class: only-{scheme}\n{words}{target}```"
        for scheme, ending in (("light", ""), ("dark", "-dark"))
    ]
    link = f'<a href="{LIVE_PAGE.name}">Open it: the model of the quickstart computes in your browser.</a>'
    return "\n\n".join([*pictures, *([link] if target else [])])


def write_formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML, which browsers draw without a script and without a network."""
    is_block = isinstance(node, math_block)
    formula = convert(node.astext(), display="block" if is_block else "inline")
    if "\\" in formula:
        raise ValueError(f"{node.astext()}: a command that latex2mathml does not know")
    writer.body.append(f'<div class="formula">{formula}</div>' if is_block else formula)
    raise SkipNode


def write_sections(app: Any) -> list[Any]:
    """Write the words of every section, which search.js ranks, and add no page."""
    language = app.builder.indexer.lang
    sections, sizes, places = [], [], {}
    for page in sorted(set(app.env.found_docs) - {page for page, of in app.env.metadata.items() if "nosearch" in of}):
        for part in app.env.get_doctree(page).findall(section):
            text = " ".join(child.astext() for child in part if not isinstance(child, section)).lower()
            words = re.findall(r"[^\W_]+", text)
            joined = [first + second for first, second in re.findall(r"(\w+)-(\w+)", text)]
            for stem in {language.stem(word) for word in {*words, *joined} if len(word) > 1}:
                places.setdefault(stem, []).append(len(sections))
            anchor = part["ids"][0] if isinstance(part.parent, section) else ""
            sections.append([page, anchor, part.next_node(title).astext()])
            sizes.append(len(words))
    index = json.dumps({"sections": sections, "sizes": sizes, "places": places}, ensure_ascii=False)
    (Path(app.outdir) / "_static" / "sections.js").write_text(f"var SECTIONS = {index};\n", encoding="utf-8")
    return []


def load_sections(app: Any, page: str, *_: Any) -> None:
    """Load the sections in the page of the search."""
    if page == "search":
        app.add_js_file("sections.js")


# For readers with a keyboard alone wide code can be scrolled, and the captions of the side bar have
# a level.
SCRIPT = """addEventListener("DOMContentLoaded", () => {
  for (const code of document.querySelectorAll("pre")) {
    code.tabIndex = 0;
    const button = document.createElement("button");
    button.textContent = "copy";
    button.className = "copy";
    button.onclick = async () => {
      await navigator.clipboard.writeText(code.textContent.trimEnd());
      button.textContent = "copied";
      setTimeout(() => (button.textContent = "copy"), 1500);
    };
    code.parentElement.append(button);
  }
  for (const each of document.querySelectorAll("[role=heading]")) each.ariaLevel = 2;
});"""


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.add_js_file(None, body=SCRIPT)
    app.connect("source-read", with_contents)
    app.connect("html-collect-pages", write_sections)
    app.connect("html-page-context", load_sections)

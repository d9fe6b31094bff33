"""Links of the pages to files outside docs/, for the site: pictures come along, source files become names."""

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LOG = logging.getLogger("mkdocs.hooks.outside_links")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((\.\./[^)#\s]+)(#[^)\s]*)?\)")
OF_THE_ROOT = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def as_page(text: str) -> str:
    """A file of the root as one of docs/: its links lead from there."""
    text = re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", r"](../\1)", text).replace("](../docs/", "](")
    for page, file in OF_THE_ROOT.items():
        text = text.replace(f"](../{file})", f"]({page})")
    return text


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie in the root, and the pictures and notebooks that pages show."""
    pages = {page: as_page((ROOT / file).read_text(encoding="utf-8")) for page, file in OF_THE_ROOT.items()}
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    texts = [*pages.values(), *(file.content_string for file in files if file.src_uri.endswith(".md"))]
    pictures = {target for text in texts for is_picture, _, target, _ in LINK.findall(text) if is_picture}
    for target in sorted(pictures):
        path = (ROOT / "docs" / target).resolve()
        if path.is_file():
            files.append(File.generated(config, site_path(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Pictures from where they were copied to, names for source files; a missing one is a warning, which ends the build."""

    def rewritten(link: re.Match[str]) -> str:
        is_picture, text, target, _ = link.groups()
        path = (ROOT / "docs" / target).resolve()
        if not path.exists():
            LOG.warning("%s: %s does not exist", page.file.src_uri, target)
        if is_picture:
            return f"![{text}]({site_path(path)})"
        return f'<span title="{path.relative_to(ROOT)}">{text}</span>' if "`" not in text else text

    return LINK.sub(rewritten, markdown)


def site_path(path: Path) -> str:
    """Where the site has a file of the repository."""
    return f"files/{path.relative_to(ROOT)}"

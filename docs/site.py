"""Makes the site's navigation of `docs/README.md`, and brings pages and files from outside `docs` into the site."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
OUTSIDE = {
    ROOT / "README.md": "start.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "SECURITY.md": "security.md",
    ROOT / "infra/README.md": "infra.md",
    ROOT / "benchmarks/README.md": "benchmarks.md",
    ROOT / "tests/README.md": "tests.md",
}
"""Pages by where they are in the clone."""
SOURCE = "source"
"""Where the site has other files that pages name."""

_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The groups of the index are those of the navigation, its links their pages."""
    sections = re.split(r"^## ", (DOCS / "README.md").read_text(), flags=re.MULTILINE)[1:]
    nav: list[Any] = [{"Documentation": "README.md"}]
    for section in sections:
        title, _, text = section.partition("\n")
        nav.append({title: [page for link in _LINK.findall(text) for page in _pages(_placed(DOCS, link))]})
    config.nav = nav
    return config


def _pages(name: str) -> list[str]:
    """The page, and behind the index of a folder the other pages of it."""
    folder = Path(name).parent
    siblings = sorted((DOCS / folder).glob("*.md")) if name.endswith("/README.md") else []
    return [name, *(str(page.relative_to(DOCS)) for page in siblings if page.name != "README.md")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from outside, and every file that a page links to."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=path.read_text()))
    pages = {**OUTSIDE, **{path: str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}}
    for page in pages:
        for link in _LINK.findall(page.read_text()):
            path = _target(page.parent, link)
            if path.is_file() and path not in pages and DOCS not in path.parents and _placed(page.parent, link):
                name = _placed(page.parent, link)
                if files.get_file_from_path(name) is None:
                    files.append(File.generated(config, name, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links lead to where the site has their targets."""
    here = next((path for path, name in OUTSIDE.items() if name == page.file.src_uri), DOCS / page.file.src_uri)
    above = Path(page.file.src_uri).parent
    return _LINK.sub(lambda link: os.path.relpath(_placed(here.parent, link[0]), above), markdown)


def _target(folder: Path, link: str) -> Path:
    return Path(os.path.normpath(folder / link))


def _placed(folder: Path, link: str) -> str:
    """The path in the site of what a page in this folder links to; of a folder, the page about it."""
    path = _target(folder, link)
    while path.is_dir():
        path = path / "README.md" if path / "README.md" in OUTSIDE else path.parent
    if path in OUTSIDE:
        return OUTSIDE[path]
    if DOCS in path.parents:
        return str(path.relative_to(DOCS))
    return f"{SOURCE}/{path.relative_to(ROOT)}" + (".txt" if path.suffix == ".py" else "")

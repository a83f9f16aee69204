"""The site's files lie as they do in the repository: a link that works on GitHub works there, and no page is copied."""

from __future__ import annotations

from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
BESIDE_DOCS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "CITATION.cff")


def on_files(files: Files, *, config) -> Files:
    """Put the pages of docs/ under docs/, and those of the repository's root beside it."""
    own = [file for file in files if file.src_dir == config.docs_dir]
    for file in own:
        files.remove(file)
    for name in (*(f"docs/{file.src_uri}" for file in own if not file.inclusion.is_excluded()), *BESIDE_DOCS):
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files

"""A hook of hatchling for the package index: links of the README become absolute, and the project gets its URLs.

The address of the repository comes from the environment variable GPEXPLORER_REPOSITORY, which the release workflow
sets. Without it the package has no URLs, and the README is as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#|mailto:)([^)\s]+)\)")


class CustomMetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling with the table [project]."""
        root, repository = Path(self.root), os.environ.get("GPEXPLORER_REPOSITORY", "").rstrip("/")
        text = (root / "README.md").read_text("utf-8")
        if repository:
            found = re.search(r'^__version__ = "(.+)"', (root / "gpexplorer" / "__init__.py").read_text("utf-8"), re.M)
            tag = f"v{found[1]}" if found else "main"
            text = absolute(text, repository, tag)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/{tag}/docs/index.md",
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def absolute(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose links to files of the repository name the repository."""

    def link(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        return f"{image}[{words}]({repository}/{'raw' if image else 'blob'}/{tag}/{target})"

    return RELATIVE.sub(link, text)

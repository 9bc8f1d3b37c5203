"""Hooks of the documentation build (mkdocs.yml): the API reference and the changelog are pages that no file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tools import reference

IMPORTS = """Examples begin with these lines:

```python
import numpy as np
import weft as wf
from weft import data, nn, optim
from weft.nn import functional as F
```
"""
ROOT = Path(__file__).resolve().parents[1]


def on_config(config: Any) -> Any:
    """The pages of the reference stand in the navigation without being listed in mkdocs.yml."""
    for item in config["nav"]:
        if "API reference" in item:
            item["API reference"] = [
                "reference/index.md",
                *[{page.title: page.path} for page in reference.pages()],
            ]
    return config


def on_files(files: Files, config: Any) -> Files:
    index = ["# API reference", "", IMPORTS, ""]
    for page in reference.pages():
        files.append(File.generated(config, page.path, content=reference.render(page)))
        name = page.path.removeprefix("reference/")
        names = ", ".join(f"[`{path.rsplit('.', 1)[-1]}`]({name}#{path})" for path, _ in page.entries)
        index += [f"## [{page.title}]({name})", "", names, ""]
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text()))
    files.append(File.generated(config, "reference/index.md", content="\n".join(index)))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme takes its worker for local pages from the network; ours is part of the site."""
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{'../' * page.url.count('/')}assets/local_worker.js")

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
            item["API reference"] = ["reference/index.md", *[{page.title: page.path} for page in reference.pages()]]
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
    return local_worker(output, "../" * page.url.count("/"))


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    return local_worker(output_content, "/" if template_name == "404.html" else "")


def local_worker(html: str, root: str) -> str:
    """The theme takes its worker for local pages from the network; ours is part of the site."""
    return html.replace("https://unpkg.com/iframe-worker/shim", f"{root}assets/local_worker.js")

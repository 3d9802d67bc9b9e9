"""What `make docs` adds to mkdocs: files from outside docs/, formulas without a script, and a look at the result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Pages of the repository that the site has as well, by their place there.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
FOLDERS = {"examples": "*.py", "notebooks": "*.ipynb"}
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# What a browser would fetch by itself while it shows a page.
FETCHED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)="(?:https?:)?//[^"]*"', re.IGNORECASE)
HARMLESS = re.compile(r'rel="(?:canonical|prev|next|edit)"')


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and programs that lie beside docs/."""
    for name, target in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, target, content=text))
    for folder, pattern in FOLDERS.items():
        for path in sorted((ROOT / folder).glob(pattern)):
            files.append(File.generated(config, f"{folder}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that leave docs/ lead to the copies on the site, or to nothing but their name."""
    for name, target in PAGES.items():
        markdown = markdown.replace(f"](../{name})", f"]({target})")
    for folder in FOLDERS:
        markdown = re.sub(rf"\]\((?:\.\./)+{folder}/", f"]({'../' * page.file.src_uri.count('/')}{folder}/", markdown)
    return re.sub(r"\[([^\]]+)\]\(\.\./zoo/[^)]*\)", r"`zoo/\1`", markdown)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas become MathML, which browsers draw by themselves."""
    return FORMULA.sub(_formula, html)


def _formula(match: re.Match[str]) -> str:
    latex = match[3].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").strip()
    return convert(latex, display="inline" if match[2] == "(" else "block")


def on_post_build(config: Any) -> None:
    """Refuse a site that would fetch something from elsewhere."""
    wrong = []
    for path in sorted(Path(config.site_dir).rglob("*.html")):
        tags = FETCHED.findall(path.read_text(encoding="utf-8"))
        wrong += [f"{path.name}: {tag}" for tag in tags if not HARMLESS.search(tag)]
    if wrong:
        raise PluginError("pages fetch something from elsewhere:\n" + "\n".join(wrong))

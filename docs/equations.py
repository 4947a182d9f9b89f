r"""A hook of mkdocs: LaTeX between dollars becomes MathML, which a browser shows without a script or a network.

`pymdownx.arithmatex` finds the formulas and latex2mathml converts them. The number in `\tag{5}` is that of the paper.
"""

from __future__ import annotations

import html
import re
from typing import Any

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', flags=re.S)
NUMBER = re.compile(r"\\tag\{([^}]*)\}")


def on_page_content(content: str, **_: Any) -> str:
    """Called by mkdocs for each page after it became HTML."""
    return FORMULA.sub(lambda found: typeset(html.unescape(found[3]).strip(), block=found[2] == "["), content)


def typeset(latex: str, block: bool) -> str:
    """A formula as MathML; one that stands in a line of its own may have a number at its right."""
    from latex2mathml.converter import convert

    if not block:
        return str(convert(latex))
    number = NUMBER.search(latex)
    math = convert(NUMBER.sub("", latex), display="block")
    return f'<div class="equation">{math}<span>{f"({number[1]})" if number else ""}</span></div>'

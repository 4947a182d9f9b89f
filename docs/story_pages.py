"""A hook of mkdocs: each story becomes a page that needs no server, and `<!-- stories -->` the list of them.

A part has its sentences, its question with the answer folded, and the pictures of its step. Below the title stands a
saved page of the story's first run, which plays. All runs are made once per build, in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpexplorer import Run
    from gpexplorer.runs.link import Link
    from gpexplorer.ui.stories import Part, Story

ROOT = Path(__file__).resolve().parent.parent
MARKER = "<!-- stories -->"
SIZE = {"width": 560, "height": 320}


class Written(NamedTuple):
    """The files of a story.

    Attributes
    ----------
    key, title : str
        Its name in links, and what it is about.
    page : str
        Its page, in Markdown.
    pictures : dict of str to str
        Name of each picture -> its SVG.
    played : str
        The saved page of its first run.
    """

    key: str
    title: str
    page: str
    pictures: dict[str, str]
    played: str


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs: a page per story, its pictures, and its saved page."""
    from mkdocs.structure.files import File

    for story in written():
        files.append(File.generated(config, f"stories/{story.key}.md", content=story.page))
        files.append(File.generated(config, f"stories/{story.key}-played.html", content=story.played))
        for name, svg in story.pictures.items():
            files.append(File.generated(config, f"stories/{name}", content=svg))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page before it becomes HTML."""
    if MARKER not in markdown:
        return markdown
    return markdown.replace(MARKER, "".join(f"- [{story.title}](stories/{story.key}.md)\n" for story in written()))


@cache
def written() -> tuple[Written, ...]:
    """All stories, told in another process, so that mkdocs itself does not import the package."""
    done = subprocess.run([sys.executable, __file__], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The stories could not be told: {done.stderr.strip()}")
    return tuple(Written(*fields) for fields in json.loads(done.stdout))


class Teller:
    """Writes one story, with as few runs as its parts have specs.

    Parameters
    ----------
    story : Story
        What to tell.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self.pictures: dict[str, str] = {}
        links = [read_link(query) for part in story.parts for query in (part.link, part.shown) if query]
        self.runs: dict[str, Run] = {}
        for link in links:
            self._advance(link)

    def tell(self) -> Written:
        """Return the files of the story."""
        from gpexplorer.views.saved_page.page_file import page_of

        key, title = self.story.key, self.story.title
        parts = "".join(self._part(number, part) for number, part in enumerate(self.story.parts, 1))
        page = f"# {title}\n\n[Play its first run]({key}-played.html): a page that needs no server.\n\n{parts}"
        first = read_link(self.story.parts[0].link)
        played = page_of(self.runs[_name(first)], keys(first), title=title)
        return Written(key, title, page, self.pictures, played)

    def _part(self, number: int, part: Part) -> str:
        text = f"## {number}. {part.title}\n\n{part.text}\n\n{self._drawn(number, part.link)}\n\n"
        if part.beside:
            text += f"Measured on the page only, at `?story={self.story.key}&part={number}`.\n\n"
        if not part.predict:
            return text
        shown = self._drawn(number, part.shown, "answer") if part.shown else ""
        answer = f'<details markdown="1"><summary>Answer</summary>\n\n{part.answer}\n\n{shown}\n\n</details>'
        return f"{text}**{part.predict}**\n\n{answer}\n\n"

    def _drawn(self, number: int, query: str, of: str = "part") -> str:
        """The pictures of a link as Markdown."""
        link = read_link(query)
        run, images = self.runs[_name(link)], []
        for key in keys(link):
            name = f"{self.story.key}-{number}-{of}-{key}.svg"
            self.pictures[name] = run.plot(key, link.at, **SIZE).svg()
            images.append(f"![{escape(_title(key))}, step {link.at}]({name}){{ loading=lazy }}")
        return "\n".join(images)

    def _advance(self, link: Link) -> None:
        """Take the run of a link to its step."""
        advance_to(self.runs.setdefault(_name(link), link.spec.open()), link.at or 0)


def read_link(query: str) -> Link:
    """What a part of a story opens."""
    from gpexplorer.runs import Spec, link
    from gpexplorer.ui.explorer import START
    from gpexplorer.views.base import registry

    return link.read(query, Spec(**START), registry)


def advance_to(run: Run, step: int) -> None:
    """Take a run to this step, or to its end."""
    while not (len(run.trace) and run.done >= step) and run.advance() is not None:
        pass


def keys(link: Link) -> Sequence[str]:
    """The pictures of a link: the prediction, and the one that it names."""
    return list(dict.fromkeys(["fit", link.view or "fit"]))


def told(stories: Iterable[Story]) -> list[Written]:
    """Tell these stories, here."""
    return [Teller(story).tell() for story in stories]


def _name(link: Link) -> str:
    return str(link.spec.to_json())


def _title(key: str) -> str:
    from gpexplorer.views.base import registry

    return str(registry[key].title)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from gpexplorer.ui.stories import STORIES

    print(json.dumps(told(STORIES.values())))

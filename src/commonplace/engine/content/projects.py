"""The project and branch that memories belong to, as the labels `project:…` and `branch:…`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commonplace.errors import InvalidInput

# The program of the hooks imports this module: it must not load much.
PROJECT = "project:"
BRANCH = "branch:"
NAME_CHARS = 92  # a label is a tag, which has at most 100 characters


@dataclass(frozen=True, slots=True)
class Project:
    """A project, and the branch of it that is worked on.

    An empty name means what belongs to no project.
    """

    name: str
    branch: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or len(self.name) > NAME_CHARS:
            raise InvalidInput(
                f"A project's name must be a string of at most {NAME_CHARS} characters.",
                hint="Shorten it.",
                field="project",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags of what is stored in it."""
        if not self.name:
            return ()
        branch = self.branch[:NAME_CHARS]
        return (f"{PROJECT}{self.name}", *([f"{BRANCH}{branch}"] if branch else ()))

    def label(self, tags: Sequence[str]) -> Sequence[str]:
        """Return the tags with the project's labels, unless they name a project already."""
        return tags if is_labelled(tags) else (*tags, *self.labels)

    def admits(self, tags: Iterable[str]) -> bool:
        """Return whether a memory with these tags belongs to this project or to none."""
        names = [tag for tag in tags if tag.startswith(PROJECT)]
        return not names or (bool(self.name) and f"{PROJECT}{self.name}" in names)

    def other_branch(self, tags: Iterable[str]) -> str:
        """Return the branch that the tags name, if it is another one than this; else nothing."""
        named = [tag.removeprefix(BRANCH) for tag in tags if tag.startswith(BRANCH)]
        if not named or not self.branch or self.branch[:NAME_CHARS] in named:
            return ""
        return named[0]


def is_labelled(tags: Iterable[str]) -> bool:
    """Return whether tags name a project."""
    return any(tag.startswith(PROJECT) for tag in tags)


def labels_of(tags: Iterable[str]) -> list[str]:
    """Return the tags that name a project or a branch."""
    return [tag for tag in tags if tag.startswith((PROJECT, BRANCH))]


def checked_project(project: object) -> Project:
    """Return a project; InvalidInput for anything else."""
    if not isinstance(project, Project):
        raise InvalidInput("project must be a Project.", hint="Use Project.", field="project")
    return project

"""The project and branch that memories belong to, as the labels `project:…` and `branch:…`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from commonplace.errors import InvalidInput

# The hook program imports this module, so it must load little else.
PROJECT = "project:"
BRANCH = "branch:"
NAME_CHARS = 92  # a label is a tag, which has at most 100 characters


@dataclass(frozen=True, slots=True)
class Project:
    """A project, and the current branch.

    An empty name stands for content without a project.
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
        """The tags of memories that are stored in the project."""
        if not self.name:
            return ()
        branch = self.branch[:NAME_CHARS]
        return (f"{PROJECT}{self.name}", *([f"{BRANCH}{branch}"] if branch else ()))

    def label(self, tags: Sequence[str]) -> Sequence[str]:
        """Return the tags with the project's labels added, unless they name a project already."""
        return tags if is_labelled(tags) else (*tags, *self.labels)

    def admits(self, tags: Iterable[str]) -> bool:
        """Return whether a memory with these tags belongs to this project or to no project."""
        names = [tag for tag in tags if tag.startswith(PROJECT)]
        return not names or (bool(self.name) and f"{PROJECT}{self.name}" in names)

    def other_branch(self, tags: Iterable[str]) -> str:
        """Return the branch in the tags if it differs from this project's branch; else ""."""
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
    """Return the project unchanged; raise InvalidInput for anything but a Project."""
    if not isinstance(project, Project):
        raise InvalidInput("project must be a Project.", hint="Use Project.", field="project")
    return project

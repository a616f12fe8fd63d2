"""Which project a directory belongs to, and that no project sees another's memories."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from commonplace import Commonplace, Draft, Filters, InvalidInput, Line, Project
from commonplace.engine.content.projects import NAME_CHARS
from commonplace.platform import projects
from commonplace.platform.projects import normalise_remote, project_of, project_of_session

_GIT = {
    **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.org", "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.org",
}  # fmt: skip


def git(where: Path, *args: str, date: str = "2026-01-01T12:00:00Z") -> None:
    words = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *args]
    subprocess.run(
        words, cwd=where, env={**_GIT, "GIT_COMMITTER_DATE": date}, check=True, capture_output=True
    )


def repository(where: Path, remote: str = "", commit: str = "first") -> Path:
    where.mkdir(parents=True)
    git(where, "init", "-q")
    if commit:
        (where / "file").write_text(f"{commit} {where}")
        git(where, "add", ".")
        git(where, "commit", "-qm", commit)
    if remote:
        git(where, "remote", "add", "origin", remote)
    return where


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "home"
    where.mkdir()
    monkeypatch.setenv("HOME", str(where))
    monkeypatch.delenv("COMMONPLACE_PROJECT")
    return where


@pytest.fixture
def matrix(home: Path) -> dict[str, Path]:
    """Directories by name; those with the same word before the dot are one project."""
    work = home / "work"
    shop = repository(work / "shop", "git@github.com:acme/shop.git")
    git(shop, "worktree", "add", "-q", "-b", "fix", str(work / "shop-fix"))
    (shop / "src" / "deep").mkdir(parents=True)
    clone = repository(home / "clone of shop", "https://ann:pw@GitHub.com:443/acme/shop")
    fork = repository(work / "fork" / "shop", "https://github.com/ann/shop.git")
    plain = repository(work / "plain")
    git(work, "clone", "-q", str(plain), str(work / "plain2"))
    git(plain, "worktree", "add", "-q", "-b", "side", str(work / "plain-side"))
    git(plain, "checkout", "-q", "--orphan", "pages")
    git(plain, "commit", "-qm", "pages", date="2026-02-01T12:00:00Z")
    git(shop, "submodule", "add", "-q", str(plain), "vendored")
    git(shop / "vendored", "remote", "set-url", "origin", "https://git.example.org/lib.git")
    api = repository(work / "a" / "api", "ssh://git@git.example.org:2222/a/api.git")
    other_api = repository(work / "b" / "api", "ssh://git@git.example.org:2222/b/api.git")
    lonely, lonely2 = repository(work / "c" / "api"), repository(work / "d" / "api")
    unborn = repository(work / "unborn", commit="")
    old = repository(work / "old name", "git.example.org:tools/moved")
    old.rename(work / "new name")
    bare_folder, named = home / "no git", home / "named"
    (bare_folder / "inner").mkdir(parents=True)
    (named / "inner").mkdir(parents=True)
    (named / ".commonplace.toml").write_text('project = "expedition"\n')
    return {
        "shop.1": shop, "shop.2": work / "shop-fix", "shop.3": clone, "shop.4": shop / "src/deep",
        "fork": fork, "plain.1": plain, "plain.2": work / "plain2", "plain.3": work / "plain-side",
        "submodule": shop / "vendored", "api a": api, "api b": other_api, "api c": lonely,
        "api d": lonely2, "unborn": unborn, "moved": work / "new name",
        "no git": bare_folder, "no git, inner": bare_folder / "inner", "named.1": named,
        "named.2": named / "inner",
    }  # fmt: skip


def test_no_project_of_the_matrix_sees_anothers_memories(
    matrix: dict[str, Path], memory: Commonplace
) -> None:
    memory.remember("The heron is everywhere")
    found = {name: project_of(where, any_directory=True) for name, where in matrix.items()}
    for name, project in found.items():
        assert project is not None, name
        inside = memory.within(project)
        inside.remember(f"The heron nests at {name}")
        inside.conversations.add("talk", Line(speaker="ann", text=f"A heron talks of {name}"))
    leaks = []
    for name, project in found.items():
        inside = memory.within(project)
        seen = {
            "recall": [hit.memory for hit in inside.recall("heron", limit=100)],
            "browse": inside.browse(limit=100)[0],
            "find_text": inside.find_text("heron", limit=100)[0],
            "prompt": [
                hit.memory for hit in inside.recall_for_prompt("heron", limit=100, minimum=0.0)
            ],
            "as_of": [hit.memory for hit in inside.recall("heron", limit=100, as_of="9999-01-01")],
        }
        own = [each for each in matrix if each.split(".")[0] == name.split(".")[0]]
        wanted = {"The heron is everywhere"}
        wanted |= {f"{words} {each}" for each in own
                   for words in ("The heron nests at", "A heron talks of")}  # fmt: skip
        for how, memories in seen.items():
            texts = {each.text for each in memories}
            assert wanted <= texts, (name, how)
            leaks += [(name, how, text) for text in texts - wanted]
        sessions = inside.recall_sessions("heron", limit=100)
        assert all(project is not None and project.admits(hit.best.tags) for hit in sessions)
    assert leaks == []


def test_names_say_what_the_project_is(matrix: dict[str, Path], home: Path) -> None:
    def name(key: str) -> str:
        project = project_of(matrix[key], any_directory=True)
        assert project is not None
        return project.name

    assert name("shop.1") == name("shop.3") == "github.com/acme/shop"
    assert name("fork") == "github.com/ann/shop"
    assert name("submodule") == "git.example.org/lib"
    assert name("api a") == "git.example.org/a/api"
    assert name("moved") == "git.example.org/tools/moved"
    assert name("named.2") == "expedition"
    assert name("no git") == str(home / "no git")
    assert name("plain.1").startswith("git:")
    assert project_of(matrix["no git"]) is None, "only hooks take any directory"


def test_the_branch_is_that_of_the_worktree(matrix: dict[str, Path]) -> None:
    assert project_of(matrix["shop.1"]) == Project("github.com/acme/shop", "main")
    assert project_of(matrix["shop.2"]) == Project("github.com/acme/shop", "fix")
    git(matrix["shop.1"], "checkout", "-q", "--detach")
    assert project_of(matrix["shop.1"]) == Project("github.com/acme/shop")


def test_the_home_directory_is_global_even_if_it_is_a_repository(home: Path) -> None:
    git(home, "init", "-q")
    (home / ".commonplace.toml").write_text('project = "dots"')
    below = home / "letters"
    below.mkdir()
    for any_directory in (False, True):
        assert project_of(home, any_directory=any_directory) is None
        assert project_of(home.parent, any_directory=any_directory) is None
    assert project_of(below) is None
    assert project_of(below, any_directory=True) == Project(str(below))


def test_the_variable_comes_first_and_a_dash_means_none(matrix: dict[str, Path]) -> None:
    where = matrix["shop.1"]
    assert project_of(where, {"COMMONPLACE_PROJECT": "x"}) == Project("x", "main")
    assert project_of(matrix["named.1"], {"COMMONPLACE_PROJECT": "x"}) == Project("x")
    assert project_of(where, {"COMMONPLACE_PROJECT": "-"}) is None
    assert project_of(where, {"COMMONPLACE_PROJECT": " "}) == project_of(where)


@pytest.mark.parametrize(
    "text",
    ["project = 3", 'project = ""', "project = [", b"project = '\xff'", f"project = '{'x' * 93}'"],
)
def test_a_bad_settings_file_is_an_error(text: str | bytes, home: Path) -> None:
    where = home / "project"
    where.mkdir()
    (where / ".commonplace.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput):
        project_of(where)


def test_a_settings_file_without_a_name_changes_nothing(matrix: dict[str, Path]) -> None:
    (matrix["shop.1"] / ".commonplace.toml").write_text("other = 1\n")
    assert project_of(matrix["shop.1"]) == Project("github.com/acme/shop", "main")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/Acme/API.git", "github.com/acme/api"),
        ("https://ann:token@github.com/acme/api/", "github.com/acme/api"),
        ("ssh://git@github.com:22/acme/api.git", "github.com/acme/api"),
        ("git@github.com:acme/api.git", "github.com/acme/api"),
        ("github.com:acme/api", "github.com/acme/api"),
        ("git://git.example.org//Group/Sub/api.git", "git.example.org/Group/Sub/api"),
        ("https://[2001:db8::1]:8443/api.git", "2001:db8::1/api"),
        ("git@[2001:db8::1]:api.git", "2001:db8::1/api"),
        ("HTTPS://GIT.EXAMPLE.ORG/api", "git.example.org/api"),
        ("", ""),
        ("/srv/git/api.git", ""),
        ("../api", ""),
        ("file:///srv/git/api.git", ""),
        (r"C:\repositories\api", ""),
        ("C:/repositories/api", ""),
        ("https://[broken/api", ""),
        ("https://github.com/", ""),
    ],
)
def test_a_remote_has_one_name_in_all_its_forms(url: str, name: str) -> None:
    assert normalise_remote(url) == name


@pytest.mark.parametrize("where", ["C:\\Users\\ann\\shop", "shop"])
def test_a_path_of_another_system_is_no_project_of_this_directory(
    where: str, matrix: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(matrix["shop.3"])
    assert project_of_session(where) == Project(where)
    assert project_of_session(where, {"COMMONPLACE_PROJECT": "given"}) == Project("given", "main")


@pytest.mark.parametrize(
    "written",
    ["https://example.org/acme/shop # ours", '"https://example.org/acme/shop" ; ours',
     "https://example.org/acme/shop"],
)  # fmt: skip
def test_a_comment_is_no_part_of_a_remote(written: str, home: Path) -> None:
    where = repository(home / "shop")
    (where / ".git" / "config").write_text(f'[remote "origin"] # this\n\turl = {written}\n')
    found = project_of(where)
    assert found is not None and found.name == "example.org/acme/shop"


def test_the_branch_of_a_table_of_branches_is_not_known(home: Path) -> None:
    where = repository(home / "shop", "https://example.org/acme/shop")
    (where / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert project_of(where) == Project("example.org/acme/shop")


def test_a_settings_file_may_begin_with_a_byte_order_mark(matrix: dict[str, Path]) -> None:
    (matrix["shop.3"] / ".commonplace.toml").write_bytes(b'\xef\xbb\xbfproject = "x"\n')
    found = project_of(matrix["shop.3"])
    assert found is not None and found.name == "x"


def test_a_long_path_is_shortened_and_stays_distinct(home: Path) -> None:
    first, second = home / ("a" * 150), home / ("a" * 151)
    first.mkdir()
    second.mkdir()
    names = [project_of(each, any_directory=True) for each in (first, second)]
    assert names[0] is not None and names[1] is not None
    assert names[0] != names[1] and len(names[0].name) == NAME_CHARS
    with pytest.raises(InvalidInput):
        Project("x" * (NAME_CHARS + 1))
    assert Project("x" * NAME_CHARS).labels == (f"project:{'x' * NAME_CHARS}",)


def test_finding_a_project_loads_no_engine() -> None:
    """The program of the hooks has 60 ms of CPU for all it does."""
    script = (
        "import sys, commonplace.platform.projects as p; p.project_of('.', any_directory=True);"
        "print([m for m in ('numpy', 'apsw', 'typer', 'commonplace.engine.checks')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# What is stored and found with a project


HERE = Project("shop", "main")


def test_what_is_stored_in_a_project_has_its_labels(memory: Commonplace) -> None:
    inside = memory.within(HERE)
    labels = ("project:shop", "branch:main")
    assert inside.remember("fern", tags=["a"]).tags == ("a", *labels)
    assert inside.remember_many([Draft(text="fern")])[0].tags == labels
    old = inside.remember("old fern")
    assert inside.supersede(old.id, "new fern").tags == labels
    assert inside.conversations.add("c", Line(speaker="a", text="b"))[0].memory.tags == labels
    assert inside.remember("fern", tags=["project:other"]).tags == ("project:other",)
    assert inside.remember("Ann", kind="identity").tags == ()
    assert memory.remember("fern").tags == ()
    assert inside.at("elsewhere").remember("fern").tags == labels


def test_a_revision_leaves_a_memory_in_its_project(memory: Commonplace) -> None:
    inside = memory.within(HERE)
    stored = inside.remember("fern", tags=["a"])
    assert inside.revise(stored.id, tags=["b"]).tags == ("b", "project:shop", "branch:main")
    moved = inside.revise(stored.id, tags=["b", "project:other"])
    assert moved.tags == ("b", "project:other")
    assert memory.revise(stored.id, tags=["c"]).tags == ("c",), "the library sets what it is given"


def test_a_memory_may_belong_to_two_projects(memory: Commonplace) -> None:
    memory.remember("fern", tags=["project:one", "project:two"])
    for name, count in (("one", 1), ("two", 1), ("three", 0), ("", 0)):
        assert memory.browse(project=Project(name))[1] == count


def test_an_empty_name_finds_only_what_is_global(memory: Commonplace) -> None:
    memory.remember("fern at large", tags=["branch:main"])
    memory.within(HERE).remember("fern in the shop")
    found = memory.recall("fern", project=Project(""))
    assert [hit.memory.text for hit in found] == ["fern at large"]


def test_the_own_project_and_branch_come_first(memory: Commonplace) -> None:
    memory.remember("The heron nests by the lake")
    memory.within(Project("shop", "fix")).remember("The heron nests by the lake")
    memory.within(HERE).remember("The heron nests by the lake")
    found = memory.within(HERE).recall("where does the heron nest?")
    assert [HERE.other_branch(hit.memory.tags) for hit in found] == ["", "fix", ""]
    assert found[0].memory.tags == HERE.labels and found[2].memory.tags == ()
    assert found[0].score > found[1].score > found[2].score > 0.9 * found[0].score


def test_labels_are_followed_when_they_change(memory: Commonplace) -> None:
    stored = memory.remember("fern")
    inside, other = memory.within(HERE), memory.within(Project("other"))
    assert len(inside.recall("fern")) == len(other.recall("fern")) == 1
    memory.revise(stored.id, tags=["project:shop"])
    before = memory.history.versions(stored.id)[-1]
    assert len(inside.recall("fern")) == 1 and len(other.recall("fern")) == 0
    assert len(other.recall("fern", as_of=before.since)) == 1, "as it was then"
    with memory.unit("inside"):
        memory.remember("another fern", tags=["project:other"])
        assert [hit.memory.text for hit in other.recall("fern")] == ["another fern"]
    memory.undo()
    assert len(other.recall("fern")) == 0


def test_a_condition_of_the_call_wins_over_the_memorys_project(memory: Commonplace) -> None:
    inside = memory.within(HERE)
    inside.remember("fern")
    other = Project("other")
    assert inside.browse(project=other)[1] == 0
    assert inside.browse(filters=Filters(project=other))[1] == 0
    assert len(inside.recall("fern", filters=Filters(project=other))) == 0
    assert len(inside.recall("fern", filters=Filters(kinds=["note"]))) == 1


@pytest.mark.parametrize("wrong", ["shop", 3])
def test_a_project_must_be_a_project(wrong: object, memory: Commonplace) -> None:
    with pytest.raises(InvalidInput):
        memory.within(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        memory.recall("fern", project=wrong)  # type: ignore[typeddict-item]


# The command line, as a process in a directory


def command(where: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "commonplace.cli", *args], cwd=where, capture_output=True, text=True
    )


def test_the_command_line_works_in_the_project_of_its_directory(
    matrix: dict[str, Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_DATA", str(home / "data"))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")

    def stored(where: Path, *args: str) -> list[str]:
        done = command(where, "remember", *args, "--json")
        return list(json.loads(done.stdout)["tags"])

    def found(where: Path, *args: str) -> list[str]:
        done = command(where, "search", "heron", *args, "--json")
        return sorted(json.loads(line)["memory"]["text"] for line in done.stdout.splitlines())

    shop, fork, plain = matrix["shop.1"], matrix["fork"], matrix["no git"]
    assert stored(shop, "heron of the shop") == ["project:github.com/acme/shop", "branch:main"]
    assert stored(fork, "heron of the fork") == ["project:github.com/ann/shop", "branch:main"]
    assert stored(shop, "heron at large", "--global") == []
    assert stored(home, "heron at home") == []
    assert stored(home, "heron sent", "--project", "expedition") == ["project:expedition"]
    assert found(shop) == ["heron at home", "heron at large", "heron of the shop"]
    assert found(matrix["shop.2"]) == found(shop)
    assert found(matrix["named.1"]) == ["heron at home", "heron at large", "heron sent"]
    assert found(shop, "--project", "expedition") == found(matrix["named.1"])
    assert len(found(shop, "--everywhere")) == len(found(plain)) == 5
    assert "stored on another branch: main" in command(matrix["shop.2"], "search", "heron").stdout
    assert "project:" not in command(shop, "search", "heron").stdout
    assert command(shop, "search", "heron", "--project", " ").returncode == 2


def test_a_repository_without_a_remote_is_asked_once(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = repository(home / "plain")
    projects._root_commit.cache_clear()
    first = project_of(where)
    monkeypatch.setenv("PATH", "")  # git cannot be found any more
    assert project_of(where) == first
    projects._root_commit.cache_clear()
    assert project_of(where) == Project(str(where), "main")


def test_an_agent_over_stdio_works_in_the_project_it_was_started_in(
    matrix: dict[str, Path], home: Path
) -> None:
    def ask(where: Path, *calls: tuple[str, dict[str, Any]], options: Any = ()) -> list[Any]:
        async def talk() -> list[Any]:
            from mcp import ClientSession, StdioServerParameters, stdio_client

            words = ["-m", "commonplace.cli", "mcp", "--embedding", "none", *options]
            server = StdioServerParameters(
                command=sys.executable, args=words, cwd=where,
                env={**os.environ, "COMMONPLACE_DATA": str(home / "data")},
            )  # fmt: skip
            async with stdio_client(server) as pipes, ClientSession(*pipes) as session:
                await session.initialize()
                answers = [await session.call_tool(name, given) for name, given in calls]
                return [answer.structured_content for answer in answers]

        return anyio.run(talk)

    def heron(answer: Any) -> list[str]:
        return sorted(each["text"] for each in answer["memories"])

    recall = ("recall", {"query": "heron"})
    ask(matrix["shop.1"], ("remember", {"text": "heron of the shop"}),
        ("remember", {"text": "heron at large", "everywhere": True}))  # fmt: skip
    there, all_of_them, context = ask(
        matrix["fork"], recall, ("recall", {"query": "heron", "everywhere": True}), ("context", {})
    )
    assert heron(there) == ["heron at large"]
    assert heron(all_of_them) == ["heron at large", "heron of the shop"]
    assert [each["text"] for each in context["recent"]] == ["heron at large"]
    (worktree,) = ask(matrix["shop.2"], recall)
    marks = {each["text"]: each.get("other_branch") for each in worktree["memories"]}
    assert marks == {"heron of the shop": "main", "heron at large": None}
    (named,) = ask(home, recall, options=("--project", "github.com/acme/shop"))
    assert heron(named) == ["heron at large", "heron of the shop"]


def test_a_new_repository_is_known_by_its_first_commit_as_soon_as_there_is_one(home: Path) -> None:
    where = repository(home / "new", commit="")
    assert project_of(where) == Project(str(where), "main")
    (where / "file").write_text("first")
    git(where, "add", ".")
    git(where, "commit", "-qm", "first")
    found = project_of(where)
    assert found is not None and found.name.startswith("git:")
    git(where, "pack-refs", "--all")
    assert project_of(where) == found


def test_recall_for_a_hook_leaves_other_projects_out(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_DATA", str(home / "data"))
    monkeypatch.setenv("COMMONPLACE_EMBEDDING", "none")
    shop, bank = home / "shop", home / "bank"
    for where in (shop, bank):
        where.mkdir()
        (where / ".commonplace.toml").write_text(f"project = '{where.name}'")
        command(where, "remember", f"The heron nests at the {where.name}")
    command(home, "remember", "The heron nests at home")

    def recalled(where: Path, given: str) -> str:
        words = [sys.executable, "-m", "commonplace.cli", "hook", "recall"]
        return subprocess.run(words, cwd=where, input=given, capture_output=True, text=True).stdout

    prompt = "Where does the heron nest?"
    for given in (recalled(shop, prompt),
                  recalled(home, json.dumps({"prompt": prompt, "cwd": str(shop)}))):  # fmt: skip
        assert "at the shop" in given and "at home" in given and "at the bank" not in given
    assert "at home" in (said := recalled(tmp_path, prompt)) and "at the shop" not in said

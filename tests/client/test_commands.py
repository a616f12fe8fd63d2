"""Commands that use the model of the server that runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from commonplace.cli import served_model
from commonplace.embedding.builtin import BuiltIn

from .harness import PROGRAM, Agent, kill_server, place_of, server_of

# Run first in every command: loading the model there is an error.
NO_MODEL = """
import os, sys
if "COMMONPLACE_BACKGROUND" not in os.environ:
    class Refusing:
        def find_spec(self, name, path, target=None):
            if name == "onnxruntime":
                raise AssertionError("the model is loaded")
    sys.meta_path.insert(0, Refusing())
"""
# Run first in every command: write down at the end what it has imported.
NOTE_MODULES = """
import atexit, os, sys
if "COMMONPLACE_BACKGROUND" not in os.environ and "NOTE_MODULES" in os.environ:
    def note():
        with open(os.environ["NOTE_MODULES"], "w") as file:
            file.write(" ".join(sys.modules))
    atexit.register(note)
"""
HEAVY = {"numpy", "onnxruntime", "tokenizers", "simsimd", "commonplace.storage.index"}
ROOT = Path(__file__).parents[2]


def test_commands_find_by_meaning_without_loading_the_model(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NO_MODEL)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT / "src")])}
    data = tmp_path / "data"

    def do(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*PROGRAM, *words, "--data", str(data)], capture_output=True, text=True, env=environ,
            timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    with Agent(data, "--embedding", "builtin") as agent:
        agent.call("remember", text="Alice moved to the vision team")
        code, said = do("remember", "Bob bakes bread on Sundays")
        assert code == 0, said
        code, said = do("search", "which team is Alice in?", "--why")
        assert code == 0 and "meaning: " in said, said
        assert said.index("Alice") >= 0
        agent.end()
        kill_server(data)
    code, said = do("search", "which team is Alice in?")
    assert "the model is loaded" in said, "without a server, it would be"


def test_a_command_that_the_server_answers_loads_neither_index_nor_model(tmp_path: Path) -> None:
    site, data, noted = tmp_path / "site", tmp_path / "data", tmp_path / "modules"
    site.mkdir()
    (site / "sitecustomize.py").write_text(NOTE_MODULES)
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    environ = {**os.environ, "PYTHONPATH": path, "NOTE_MODULES": str(noted)}

    def do(*words: str) -> tuple[tuple[int, str, str], set[str]]:
        done = subprocess.run(
            [*PROGRAM, *words, "--data", str(data)], capture_output=True, text=True, env=environ,
            timeout=120, input="Which team is Alice on?",
        )  # fmt: skip
        return (done.returncode, done.stdout, done.stderr), set(noted.read_text().split())

    commands = [
        ["search", "which team is Alice on?", "--why"],
        ["search", "heron"],  # which no memory holds, so that its spelling is looked at
        ["search", "heron", "--all", "--json"],
        ["search", "Alise", "--all", "--why"],
        ["search", "team", "--text", "-n", "1"],
        ["search", "Alice", "--by", "session", "--since", "yesterday"],
        ["search", "Alice", "--limit", "0"],
        ["search", "Alice", "--space", "absent"],
        ["list", "--tag", "people", "--json"],
        ["list", "-n", "1"],
        ["search", "Alice", "--project", "elsewhere"],
    ]
    with Agent(data, "--embedding", "builtin") as agent:
        agent.call("remember", text="Alice moved to the vision team", tags=["people"])
        agent.call("remember", text="The team meets on Thursdays")
        answered = {tuple(words): do(*words) for words in commands}
        recalled, modules = do("hook", "recall")
        assert "vision team" in recalled[1] and not HEAVY & modules
        _, modules = do("search", "Alice", "--embedding", "none")
        assert "numpy" in modules, "the server has another model, so it is not asked"
        agent.end()
        kill_server(data)
    for words, (told, modules) in answered.items():
        assert not HEAVY & modules, words
        assert told == do(*words)[0], words
    assert answered["search", "which team is Alice on?", "--why"][0][0] == 0


def test_the_servers_vectors_are_those_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, builtin_model: BuiltIn
) -> None:
    texts = ["Alice moved to the vision team", "", "日本語"]
    with Agent(tmp_path, "--embedding", "builtin") as agent:
        agent.call("recall", query="x")
        model = served_model.ServedModel(place_of(tmp_path))
        monkeypatch.setattr(BuiltIn, "_compute", None)
        served = model.embed(texts)
        monkeypatch.undo()
        assert server_of(tmp_path) is not None
    assert served.dtype == np.float32
    np.testing.assert_allclose(served, builtin_model.embed(texts), atol=1e-6)


def test_a_server_with_another_model_is_not_asked(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:  # without a model
        agent.call("recall", query="x")
        model = served_model.ServedModel(place_of(tmp_path))
        assert model.embed(["text"]).shape == (1, model.dimensions)

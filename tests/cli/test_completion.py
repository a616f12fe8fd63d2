"""Completion in a shell knows every command and option."""

from __future__ import annotations

import subprocess

import pytest

from commonplace.cli import completion
from commonplace.cli.app import run


def _completed(typed: str) -> set[str]:
    """What bash offers after some words; the last one is being typed."""
    words = typed.split(" ")
    given = " ".join(f"'{word}'" for word in words)
    script = completion._bash_script(completion.next_words()) + (
        f"\nCOMP_WORDS=({given}); COMP_CWORD={len(words) - 1}"
        f"\n_commonplace commonplace '{words[-1]}' '{words[-2]}'"
        "\nprintf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_names() -> None:
    assert {"remember", "recall", "help", "being"} <= _completed("commonplace ")
    assert _completed("commonplace rem") == {"remember"}
    assert _completed("commonplace token ") >= {"create", "list", "revoke"}
    assert _completed("commonplace token create --di") == {"--dialect"}
    assert _completed("commonplace search hello --si") == {"--since"}
    assert _completed("commonplace search hello --data") == {"--data", "--database"}
    assert _completed("commonplace connect claude") == {"claude-code", "claude-desktop"}
    assert _completed("commonplace help und") == {"undo"}
    assert _completed("commonplace nothing-of-ours zzz") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    for path, level in completion.next_words().items():
        assert all(word in script for word in (*path, *level.commands))
        assert all(flag.removeprefix("--") in script for flag in level.options)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err

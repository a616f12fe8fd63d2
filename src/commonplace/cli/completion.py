"""Generates shell completion scripts from the commands and options."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, Any

from commonplace.cli.options import argument
from commonplace.cli.terminal import say
from commonplace.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class NextWords:
    """The possible next words after a command: commands, options and names, with their help."""

    commands: dict[str, str]
    options: dict[str, str]
    names: tuple[str, ...] = ()


def completion(
    shell: Annotated[str, argument("bash|zsh|fish", "The shell.")],
) -> None:
    """Print the script that completes our commands in a shell.

    \b
      eval "$(commonplace completion bash)"      # in ~/.bashrc
      eval "$(commonplace completion zsh)"       # in ~/.zshrc
      commonplace completion fish | source       # in config.fish
    """
    if shell not in _SCRIPTS:
        raise InvalidInput(
            f"Completion for {shell[:80]!r} is not supported.",
            hint=f"The supported shells are {', '.join(_SCRIPTS)}.",
            field="shell",
        )
    say(_SCRIPTS[shell](next_words()))


COMMANDS = (completion,)


def next_words() -> dict[tuple[str, ...], NextWords]:
    """Return the possible next words, by the words of a command."""
    from commonplace.cli.app import ALIASES, program_with_command
    from commonplace.cli.clients import CLIENTS

    program = program_with_command("")
    found: dict[tuple[str, ...], NextWords] = {}
    names: dict[tuple[str, ...], tuple[str, ...]] = {
        ("connect",): tuple(CLIENTS),
        ("stop-using",): tuple(CLIENTS),
        ("completion",): tuple(_SCRIPTS),
    }

    def walk(command: Any, path: tuple[str, ...]) -> None:
        below = getattr(command, "commands", {})
        shown = {name: each.get_short_help_str(60) for name, each in below.items()
                 if not each.hidden}  # fmt: skip
        options = {
            flag: (getattr(one, "help", None) or "").partition(".")[0]
            for one in command.params
            for flag in (*one.opts, *one.secondary_opts)
            if flag.startswith("--")
        }
        found[path] = NextWords(shown, {**options, "--help": "Show help"}, names.get(path, ()))
        for name, each in below.items():
            walk(each if path else program_with_command(name).commands[name], (*path, name))

    walk(program, ())
    for alias, name in ALIASES.items():
        found[()].commands[alias] = found[()].commands[name]
        found[(alias,)] = found[(name,)]
    found[()].commands["help"] = "Explain a command"
    found[("help",)] = NextWords({}, {}, tuple(found[()].commands))
    return found


def _bash_script(levels: dict[tuple[str, ...], NextWords]) -> str:
    paths = " | ".join(shlex.quote(" " + " ".join(path)) for path in levels if path)
    cases = "\n".join(
        f"    {shlex.quote(''.join(f' {word}' for word in path))})"
        f" known={shlex.quote(' '.join((*level.commands, *level.names, *level.options)))} ;;"
        for path, level in levels.items()
    )
    return f"""\
_commonplace() {{
  local each known found=""
  for each in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
    case "$found $each" in
    {paths}) found="$found $each" ;;
    esac
  done
  case "$found" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$known" -- "$2"))
}}
complete -o default -F _commonplace commonplace"""


def _zsh_script(levels: dict[tuple[str, ...], NextWords]) -> str:
    """Return the script for bash with zsh's adapter for it."""
    return f"autoload -Uz compinit bashcompinit\ncompinit\nbashcompinit\n{_bash_script(levels)}"


def _fish_script(levels: dict[tuple[str, ...], NextWords]) -> str:
    lines = ["complete -c commonplace -f"]
    for path, level in levels.items():
        seen = [f"__fish_seen_subcommand_from {word}" for word in path]
        if level.commands and path:
            seen.append(f"not __fish_seen_subcommand_from {' '.join(level.commands)}")
        when = shlex.quote("; and ".join(seen) or "__fish_use_subcommand")
        start = f"complete -c commonplace -n {when}"
        for name, help in level.commands.items():
            lines.append(f"{start} -a {name} -d {shlex.quote(help)}")
        lines += [f"{start} -a {name}" for name in level.names]
        for flag, help in level.options.items():
            lines.append(f"{start} -l {flag[2:]} -d {shlex.quote(help)}")
    return "\n".join(lines)


_SCRIPTS = {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish_script}

"""Scripts in the sandbox over real HTTP: the seed's example, functions, limits, and every bomb."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Web, serving


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with serving(tmp_path_factory.mktemp("code") / "data", None) as made:
        folder = made.library.path / "mama" / "workspace"
        folder.mkdir(parents=True)
        (folder / "file.txt").write_text("Grüße")
        (folder / "binary").write_bytes(b"\xff\xfe")
        (folder / "large.txt").write_text("x" * 200_001)
        (folder / "fits.txt").write_text("x" * 200_000)
        yield made


def run(web: Web, code: str, timeout: float = 30_000) -> dict[str, Any]:
    answer = web.post("/api/code-act", {"code": code, "timeout": timeout})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert isinstance(told["duration"], int)
    return told


def test_the_script_of_the_seed_runs(web: Web) -> None:
    path = web.library.path / "mama" / "workspace" / "file.txt"
    told = run(web, f"const result = await Read('{path}');\nresult;", 30_000)

    assert told.keys() == {"success", "result", "duration", "logs", "toolCalls"}
    assert (told["success"], told["result"]) == (True, {"content": "Grüße"})
    assert told["toolCalls"] == [{"name": "Read", "input": [str(path)]}]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("1 + 1", 2), ("undefined", None), ("null", None), ("(() => 1)", "() => 1"),
        ("const a = {}; a.a = a; a", {"a": "[cycle]"}), ("const s = [1]; [s, s]", [[1], [1]]),
        ("await Promise.resolve('x')", "x"), ("BigInt(5)", "5"),
        ("(await Read('file.txt')).content", "Grüße"),
        ("(await Read({path: 'file.txt'})).content", "Grüße"),
        ("(await Read('fits.txt')).content.length", 200_000),
        ("(await Promise.all(['file.txt', 'file.txt'].map(Read))).length", 2),
    ],
)  # fmt: skip
def test_the_last_value_is_the_result(web: Web, code: str, result: Any) -> None:
    told = run(web, code)
    assert (told["success"], told.get("result")) == (True, result), told


def test_memories_and_settings_can_be_read(web: Web) -> None:
    decision = {"topic": "tea", "decision": "Green", "reasoning": "Calm"}
    web.post("/api/mama/save", decision)
    web.client.put(web.url + "/api/config", json={"discord": {"token": "s3cret"}})

    assert run(web, "(await mama_search('tea')).results[0].topic")["result"] == "tea"
    assert run(web, "(await mama_search({query: 'tea', limit: 1})).count")["result"] == 1
    bots = run(web, "(await os_list_bots()).bots")["result"]
    assert bots[0] == {"platform": "discord", "configured": True, "enabled": False}
    config = run(web, "await os_get_config('discord')")["result"]
    assert config["token"] == "***[redacted]***"
    web.post("/api/checkpoint/save", {"summary": "half way"})
    assert run(web, "(await mama_load_checkpoint()).checkpoint.summary")["result"] == "half way"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("throw new TypeError('boom')", "TypeError: boom"),
        ("await Read('missing.txt')", "Error: File not found"),
        ("await Read('../config.yaml')", "Error: The path is outside the workspace."),
        ("await Read('/../../etc/passwd')", "Error: The path is outside the workspace."),
        ("await Read('binary')", "Error: The file is not UTF-8 text."),
        ("await Read('large.txt')", "Error: The file is larger than 200,000 bytes."),
        ("await Read({other: 1})", "Error: Read takes path."),
        ("await os_get_config('else')", "Error: Sections: "),
        ("syntax error", "SyntaxError: "),
        ("'x'.repeat(2e6)", "RangeError: the result is larger"),
        (
            "for (let n = 0; n < 51; n++) await os_list_bots()",
            "Error: A script may make at most 50 calls",
        ),
        ("await mama_save({})", "ReferenceError: "),
    ],
)
def test_a_script_that_fails_says_why(web: Web, code: str, error: str) -> None:
    told = run(web, code)
    assert told.keys() == {"success", "error", "duration", "logs", "toolCalls"}
    assert told["success"] is False and told["error"].startswith(error), told["error"]


def test_a_result_of_almost_a_megabyte_comes_back_in_any_script(web: Web) -> None:
    assert run(web, "'é'.repeat(5e5)")["result"] == "é" * 500_000


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("while (true) {}", "TimeoutError"),
        ("/(a+)+$/.test('a'.repeat(40) + '!')", "TimeoutError"),
        ("await new Promise(() => {})", "TimeoutError"),
        ("const a = []; for (;;) a.push(new Array(1e6).fill(1))", "MemoryLimitError"),
        ("new Uint8Array(1e9)", "MemoryLimitError"),
        ("let s = 'x'; for (;;) s += s", "InternalError"),
        ("function f() { f() }; f()", ""),
    ],
)
def test_a_bomb_harms_nobody(web: Web, code: str, error: str) -> None:
    told = run(web, code, 1_000 if error == "TimeoutError" else 30_000)
    assert told["success"] is False and told["error"].startswith(error)
    assert web.get("/health").status_code == 200


def test_nothing_of_the_machine_is_there(web: Web) -> None:
    names = [
        "require",
        "process",
        "fs",
        "fetch",
        "std",
        "os",
        "WebAssembly",
        "XMLHttpRequest",
        "Deno",
        "Bun",
    ]
    code = "[" + ",".join(f"typeof {name}" for name in names) + "]"
    assert set(run(web, code)["result"]) == {"undefined"}
    assert run(web, "await import('fs')")["success"] is False
    hidden = run(web, "Object.getOwnPropertyNames(globalThis).filter(n => n.startsWith('__'))")
    assert [name for name in hidden["result"] if name in ("__log", "__call", "__names")] == []


def test_lines_of_the_console_are_kept(web: Web) -> None:
    told = run(web, "console.log('a', {b: 1}); console.error('c'); 0")
    assert told["logs"] == ['a {"b":1}', "c"]
    many = run(web, "for (let n = 0; n < 2000; n++) console.log(n); 0")
    assert len(many["logs"]) == 1_000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "BAD_REQUEST"), ({"code": ""}, "BAD_REQUEST"), ({"code": " "}, "BAD_REQUEST"),
        ({"code": 5}, "VALIDATION_ERROR"),
        ({"code": "x" * 100_001}, "VALIDATION_ERROR"),
        ({"code": "1", "timeout": "soon"}, "VALIDATION_ERROR"),
    ],
)  # fmt: skip
def test_what_is_no_script_is_refused(web: Web, body: dict[str, Any], code: str) -> None:
    answer = web.post("/api/code-act", body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["error"] is True


def test_times_are_clamped_and_long_scripts_are_accepted(web: Web) -> None:
    for timeout in (999_999, 999_999.5, 30_000.5):
        assert run(web, "1", timeout)["result"] == 1
    assert run(web, "1" + " " * 99_999)["result"] == 1


def test_two_scripts_run_at_once(web: Web) -> None:
    statuses: list[int] = []

    def one() -> None:
        answer = web.client.post(
            web.url + "/api/code-act", json={"code": "while (true) {}", "timeout": 1_500}
        )
        statuses.append(answer.status_code)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 200, 429]


def test_the_cache_is_private(web: Web) -> None:
    run(web, "1")
    assert (Path(web.library.path) / "mama" / "cache").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    ("code", "result"),
    [("Promise.resolve(5)", 5), ("(async () => 'x')()", "x"), (r"'a\ud800'", "a?")],
)
def test_a_promise_is_awaited_and_text_is_well_formed(web: Web, code: str, result: Any) -> None:
    told = run(web, code)
    assert (told["success"], told.get("result")) == (True, result), told


@pytest.mark.parametrize("code", ["Promise.reject(new Error('no'))", "new Promise(() => {})"])
def test_a_promise_that_is_not_kept_fails_the_script(web: Web, code: str) -> None:
    assert run(web, code)["success"] is False


def test_half_of_a_character_can_be_logged(web: Web) -> None:
    assert run(web, r"console.log('a\ud800'); 1")["logs"] == ["a\ufffd"]


def test_the_arguments_of_calls_are_limited(web: Web) -> None:
    told = run(web, "for (let i = 0; i < 40; i++) try { await Read('x'.repeat(9e5)) } catch {}; 1")
    assert (told["success"], told["toolCalls"]) == (True, [])
    told = run(web, "await Read('x'.repeat(5e6))")
    assert told["error"] == "RangeError: the arguments of a call are too large"
    told = run(web, "try { await Read('x'.repeat(19000)) } catch {}; 1")
    assert len(told["toolCalls"]) == 1


def test_a_long_result_and_long_logs_are_sent_together(web: Web) -> None:
    code = "for (let i = 0; i < 1000; i++) console.log('z'.repeat(1000)); 'x'.repeat(1e6)"
    told = run(web, code, 10_000)
    assert (len(told["result"]), len(told["logs"])) == (1_000_000, 1_000)

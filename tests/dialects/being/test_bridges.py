"""Bridges over a real WebSocket: acts that come and go, senses for the next context."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from commonplace import Commonplace
from commonplace.dialects.being import beings, bridges
from commonplace.engine.binding import lease
from commonplace.engine.history import audit
from commonplace.engine.transfer.exporting import export_space
from commonplace.engine.transfer.importing import import_file
from conftest import wait_until

from .conftest import Desk, Served

ACTS = [
    {"id": "lamp", "type": "act", "name": "Desk Lamp!", "description": "Light.", "actions": ["on"]},
    {"id": "eye", "type": "sense", "name": "camera", "data_type": "image"},
]


class Home:
    """A being with a space of its own, and bridges to it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.space = f"b{uuid.uuid4().hex[:12]}"
        self.being = served.being(space=self.space)
        self.token = served.token(space=self.space)

    @contextlib.contextmanager
    def socket(
        self, being: str = "", token: str | None = None, **more: Any
    ) -> Iterator[ClientConnection]:
        url = self.served.base.replace("http", "ws")
        headers = {"authorization": f"Bearer {self.token if token is None else token}"}
        path = f"/v1/beings/{being or self.being}/bridge/ws"
        given = {"additional_headers": headers, **more}
        query = given.pop("query", "")
        with connect(url + path + query, **given) as opened:
            yield opened

    @contextlib.contextmanager
    def bridge(self) -> Iterator[ClientConnection]:
        with self.socket() as opened:
            assert hear(opened)["type"] == "connected"
            say(opened, type="register", bridge_id="home", bridge_name="Home", capabilities=ACTS)
            assert hear(opened) == {
                "type": "registered",
                "bridge_id": "home",
                "capabilities_count": 2,
            }
            yield opened

    def tools(self) -> list[str]:
        listed = self.served.rpc("/mcp", self.token, "tools/list").json()
        return [tool["name"] for tool in listed["result"]["tools"]]

    def call(self, tool: str, **arguments: Any) -> Any:
        answer = self.served.call("/mcp", self.token, tool, **arguments).json()
        return json.loads(answer["result"]["content"][0]["text"])


@pytest.fixture
def home(served: Served) -> Home:
    return Home(served)


def say(socket: ClientConnection, **message: Any) -> None:
    socket.send(json.dumps(message))


def hear(socket: ClientConnection) -> dict[str, Any]:
    heard: dict[str, Any] = json.loads(socket.recv(timeout=20))
    return heard


def test_an_act_is_a_tool_while_its_bridge_is_connected(home: Home) -> None:
    with home.bridge():
        assert home.tools()[-1] == "act_desk_lamp_"
        (told,) = home.call("get_context")["capability_tools"]
        assert told["name"] == "act_desk_lamp_" and "not verified" in told["description"]
        listed = home.served.request(
            "GET", f"/v1/beings/{home.being}/capabilities", home.token
        ).json()
        assert listed["capabilities"][0]["config"] == {"actions": ["on"]}
    wait_until(lambda: "act_desk_lamp_" not in home.tools())
    assert home.call("get_context")["capability_tools"] == []


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_an_act_is_carried_out_and_its_result_comes_back(home: Home, status: str) -> None:
    with home.bridge() as socket:

        def answer() -> None:
            asked = hear(socket)
            assert (asked["type"], asked["capability_id"], asked["action"]) == ("act", "lamp", "on")
            assert asked["parameters"] == {"level": 3}
            say(socket, type="act_result", act_id=asked["act_id"], status=status, result={"lit": 1})

        thread = threading.Thread(target=answer)
        thread.start()
        done = home.call("act_desk_lamp_", action="on", parameters={"level": 3})
        thread.join()
    assert (done["status"], done["result"]) == (status, {"lit": 1})
    assert uuid.UUID(done["act_id"])


@pytest.mark.parametrize("result", ["a\0b", {"cut": "\ud83d"}, float("nan")])
def test_an_act_whose_result_cannot_be_stored_is_completed(home: Home, result: Any) -> None:
    with home.bridge() as socket, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(home.call, "act_desk_lamp_", action="photo")
        act = hear(socket)
        say(socket, type="act_result", act_id=act["act_id"], status="completed", result=result)
        told = answer.result(20)
    assert (told["act_id"], told["status"]) == (act["act_id"], "completed")
    assert told["result"] is None and told["error"].startswith("The result was left out: ")


def test_an_act_that_is_not_answered_is_a_timeout(home: Home) -> None:
    with home.bridge():
        assert home.call("act_desk_lamp_", action="on", timeout_ms=50)["status"] == "timeout"


def test_acts_that_a_silent_bridge_leaves_open_stall_no_other_space(home: Home) -> None:
    many, done = 70, list[Any]()
    other = Home(home.served)

    def act() -> None:
        done.append(home.call("act_desk_lamp_", action="on", timeout_ms=25_000))

    threads = [threading.Thread(target=act) for _ in range(many)]
    with home.bridge() as socket:
        for thread in threads:
            thread.start()
        for _ in range(40):  # are asked of the bridge, which does not answer
            assert hear(socket)["type"] == "act"
        other.call("update_memory", target="notes", action="append", content="A kettle")
        assert "kettle" in other.call("update_memory", target="notes", action="get")["message"]
        assert done == []
    while any(thread.is_alive() for thread in threads):  # those that waited are answered at once
        time.sleep(0.05)
    assert len(done) == many


@pytest.mark.parametrize("rude", [False, True])
def test_a_bridge_that_dies_leaves_its_acts_as_timeouts(home: Home, rude: bool) -> None:
    with home.bridge() as socket:

        def die() -> None:
            hear(socket)
            if rude:  # as when its process is killed
                socket.socket.shutdown(SHUT_RDWR)
            socket.close()

        thread = threading.Thread(target=die)
        thread.start()
        begun = time.monotonic()
        done = home.call("act_desk_lamp_", action="on", timeout_ms=60_000)
        thread.join()
    assert (done["status"], done["result"]) == ("timeout", None)
    assert time.monotonic() - begun < 25, "it was told when the bridge died, not when time was up"
    memory = Commonplace(space=home.space, library=home.served.made.parts.library)
    (told,) = memory.events.all(kind="being.act", subject=home.being, limit=10)
    assert (told.payload or {})["status"] == "timeout"


def test_an_act_whose_bridge_is_away_waits_for_its_owner(home: Home) -> None:
    with home.bridge():
        pass
    wait_until(lambda: "act_desk_lamp_" not in home.tools())
    ask = f"/v1/beings/{home.being}/act/pending"

    def decide(what: str, action: str) -> Any:
        return home.served.request("POST", f"{ask}/{what}", home.token, {"action_id": action})

    first = home.call("act_desk_lamp_", action="on", parameters={"level": 3})
    second = home.call("act_desk_lamp_", action="off")
    assert first["status"] == second["status"] == "pending" and "not connected" in first["message"]
    waiting = home.served.request("GET", ask, home.token).json()["actions"]
    assert [each["id"] for each in waiting] == [first["queue_id"], second["queue_id"]]
    assert waiting[0]["action"] == "on" and waiting[0]["parameters"] == {"level": 3}
    approved = decide("approve", first["queue_id"]).json()
    assert approved["ok"] and approved["action"]["status"] == "approved"
    assert decide("reject", second["queue_id"]).json()["action"]["status"] == "rejected"
    assert home.served.request("GET", ask, home.token).json() == {"actions": []}
    for gone in (first["queue_id"], str(uuid.uuid4()), "no-id"):
        assert decide("approve", gone).status_code == 404
    # Nothing is carried out by itself.
    with home.bridge() as socket, pytest.raises(TimeoutError):
        socket.recv(timeout=0.3)


def test_what_is_too_long_for_one_answer_is_shown_in_the_next(desk: Desk) -> None:
    desk.outcome("register_capabilities", being_id=desk.being, capabilities=ACTS)
    pictures = ["A" * 900_000, "B" * 900_000, "C"]
    for picture in pictures:
        desk.outcome("bridge_sense", being_id=desk.being, capability_id="eye", data=picture)
        desk.text("act_desk_lamp_", action="on", parameters={"mask": picture})
    for picture in pictures:
        (sense,) = desk.json("get_context")["pending_senses"]
        (act,) = desk.outcome("pending_acts", being_id=desk.being).wire["value"]["actions"]
        assert sense["data"] == act["parameters"]["mask"] == picture
        desk.outcome("approve_act", being_id=desk.being, action_id=act["id"])
    assert "pending_senses" not in desk.json("get_context")


def test_as_many_acts_wait_as_there_is_room_for(home: Home, monkeypatch: Any) -> None:
    monkeypatch.setattr(bridges, "MAX_WAITING_ACTS", 2)
    with home.bridge():
        pass
    wait_until(lambda: "act_desk_lamp_" not in home.tools())
    for _ in range(2):
        assert home.call("act_desk_lamp_", action="on")["status"] == "pending"
    full = home.served.call("/mcp", home.token, "act_desk_lamp_", action="on").json()["result"]
    assert full["isError"] and "approve or reject" in full["content"][0]["text"]


def test_capabilities_are_registered_over_rest_and_listed_when_their_bridge_is_there(
    home: Home,
) -> None:
    at = f"/v1/beings/{home.being}/capabilities"

    def send(method: str, path: str, body: Any = None) -> Any:
        return home.served.request(method, at + path, home.token, body)

    made = send("POST", "/register", {"bridge_id": "home", "capabilities": ACTS})
    assert (made.status_code, made.json()) == (201, {"ok": True, "registered": 2})
    assert send("GET", "").json() == {"capabilities": []}
    assert "act_desk_lamp_" not in home.tools()
    assert home.call("act_desk_lamp_", action="on")["status"] == "pending"
    wrong: list[Any] = [{}, {"capabilities": "many"}, {"capabilities": [{"type": "fly"}]}]
    wrong.append({"capabilities": [{"type": "act", "name": f"n{n}"} for n in range(99)]})
    for body in wrong:
        assert send("POST", "/register", body).status_code == 400, body
    assert send("DELETE", "/lamp").status_code == 204
    assert send("DELETE", "/lamp").status_code == 404
    answer = home.served.call("/mcp", home.token, "act_desk_lamp_", action="on").json()
    assert "error" in answer
    assert send("POST", "/register", {"capabilities": ACTS}).status_code == 201
    assert home.call("act_desk_lamp_", action="on")["status"] == "pending"


def test_a_renamed_act_leaves_its_old_name(home: Home) -> None:
    at = f"/v1/beings/{home.being}/capabilities/register"

    def register(name: str, bridge: str = "home") -> None:
        acts = [{"id": "lamp", "type": "act", "name": name}]
        body = {"bridge_id": bridge, "capabilities": acts}
        assert home.served.request("POST", at, home.token, body).status_code == 201

    register("Lamp")
    register("Light")
    register("Torch", "another bridge")
    assert "error" in home.served.call("/mcp", home.token, "act_lamp", action="on").json()
    for name in ("act_light", "act_torch"):
        assert home.call(name, action="on")["status"] == "pending"


def test_too_many_capabilities_are_refused_with_ids_to_delete(home: Home) -> None:
    at = f"/v1/beings/{home.being}/capabilities"
    for first in ("a", "b"):
        acts = [{"id": f"{first}-{n}", "type": "act", "name": f"{first}{n}"} for n in range(100)]
        body = {"capabilities": acts[: 100 if first == "a" else 1]}
        answer = home.served.request("POST", f"{at}/register", home.token, body)
    assert answer.status_code == 400
    old = answer.json()["error"].rstrip(".").split(", ")[-1]
    assert home.served.request("DELETE", f"{at}/{old}", home.token).status_code == 204
    assert home.served.request("POST", f"{at}/register", home.token, body).status_code == 201


def test_a_deleted_capability_is_gone_although_its_bridge_is_connected(home: Home) -> None:
    at = f"/v1/beings/{home.being}/capabilities"
    with home.bridge() as socket:
        for identity in ("lamp", "eye"):
            deleted = home.served.request("DELETE", f"{at}/{identity}", home.token)
            assert deleted.status_code == 204
        assert "act_desk_lamp_" not in home.tools()
        assert home.call("get_context")["capability_tools"] == []
        listed = home.served.request("GET", at, home.token).json()
        assert listed == {"capabilities": []}
        assert "error" in home.served.call("/mcp", home.token, "act_desk_lamp_", action="on").json()
        say(socket, type="sense", capability_id="eye", data={"seen": "a cat"})
        assert hear(socket)["type"] == "error"
        say(socket, type="register", bridge_id="home", capabilities=ACTS)
        assert hear(socket)["type"] == "registered"
        assert "act_desk_lamp_" in home.tools()


def test_no_capability_and_no_act_too_many_is_kept_by_twelve_at_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "MAX_CAPABILITIES", 4)
    monkeypatch.setattr(bridges, "MAX_WAITING_ACTS", 5)
    ready = threading.Barrier(12)

    def register(n: int) -> int:
        ready.wait()
        body = {"capabilities": [{"id": f"c{n}", "type": "act", "name": f"lamp {n}"}]}
        path = f"/v1/beings/{home.being}/capabilities/register"
        code: int = home.served.request("POST", path, home.token, body).status_code
        return code

    with ThreadPoolExecutor(12) as pool:
        codes = list(pool.map(register, range(12)))
        assert Counter(codes) == {201: 4, 400: 8}
        name = f"act_lamp_{codes.index(201)}"

        def act(_: int) -> bool:
            ready.wait()
            answer = home.served.call("/mcp", home.token, name, action="on").json()
            return not answer["result"]["isError"]

        assert sum(pool.map(act, range(12))) == 5
    waiting = home.served.request("GET", f"/v1/beings/{home.being}/act/pending", home.token).json()
    assert len(waiting["actions"]) == 5


def test_a_read_only_token_acts_through_nothing(home: Home) -> None:
    reader = home.served.token(space=home.space, read_only=True)
    with home.bridge():
        answer = home.served.call("/mcp", reader, "act_desk_lamp_", action="on")
        assert answer.status_code == 403
        names = home.served.rpc("/mcp", reader, "tools/list").json()["result"]["tools"]
        assert "act_desk_lamp_" not in [tool["name"] for tool in names]
    wait_until(lambda: "act_desk_lamp_" not in home.tools())
    answer = home.served.call("/mcp", reader, "act_desk_lamp_", action="on")
    assert answer.status_code == 403


def test_senses_are_shown_in_the_next_context_once(home: Home) -> None:
    with home.bridge() as socket:
        say(socket, type="sense", capability_id="eye", data={"seen": "a cat"})
        acknowledged = hear(socket)
        assert acknowledged["type"] == "sense_ack"
        reader = home.served.token(space=home.space, read_only=True)
        shown = home.served.call("/mcp", reader, "get_context").json()
        assert "a cat" in shown["result"]["content"][0]["text"], "a reader sees, and takes nothing"
        (sense,) = home.call("get_context")["pending_senses"]
        assert sense["data"] == {"seen": "a cat"} and sense["sense_id"] == acknowledged["sense_id"]
        assert "pending_senses" not in home.call("get_context")
        url = f"/v1/beings/{home.being}/sense"
        posted = home.served.request("POST", url, home.token, {"capability_id": "eye", "data": 1})
        assert posted.status_code == 201 and posted.json()["processed"] is False
        unknown = home.served.request("POST", url, home.token, {"capability_id": "no", "data": 1})
        assert unknown.status_code == 400
        history = home.served.request("GET", f"{url}/history?limit=1", home.token).json()
        assert (len(history["history"]), history["total"]) == (1, 2)


def test_senses_of_one_name_are_told_apart_by_their_ids(home: Home) -> None:
    with home.socket() as kitchen, home.socket() as bath:
        for socket, room in ((kitchen, "kitchen"), (bath, "bath")):
            hear(socket)
            sense = {"id": f"t-{room}", "type": "sense", "name": "Temperature"}
            say(socket, type="register", bridge_id=room, capabilities=[sense])
            assert hear(socket)["type"] == "registered"
        for socket, room in ((kitchen, "kitchen"), (bath, "bath")):
            say(socket, type="sense", capability_id=f"t-{room}", data={"in": room})
            assert hear(socket)["type"] == "sense_ack"
        url = f"/v1/beings/{home.being}/capabilities"
        listed = home.served.request("GET", url, home.token).json()["capabilities"]
        assert {(each["id"], each["bridge_id"]) for each in listed} == {
            ("t-kitchen", "kitchen"), ("t-bath", "bath"),
        }  # fmt: skip
        told = home.call("get_context")["pending_senses"]
        assert [each["data"]["in"] for each in told] == ["kitchen", "bath"]


def test_a_bridge_that_only_speaks_rest_can_sense(home: Home) -> None:
    at = f"/v1/beings/{home.being}"
    made = {"capabilities": ACTS}
    home.served.request("POST", f"{at}/capabilities/register", home.token, made)

    def sense(identity: str) -> int:
        body = {"capability_id": identity, "data": {"seen": "a cat"}}
        status: int = home.served.request("POST", f"{at}/sense", home.token, body).status_code
        return status

    assert [sense("eye"), sense("lamp"), sense("no")] == [201, 400, 400]
    (told,) = home.call("get_context")["pending_senses"]
    assert told["data"] == {"seen": "a cat"}
    home.served.request("DELETE", f"{at}/capabilities/eye", home.token)
    assert sense("eye") == 400


def test_senses_of_one_name_are_kept_apart_when_no_bridge_is_connected(home: Home) -> None:
    at = f"/v1/beings/{home.being}"
    for room in ("kitchen", "bath", "kitchen"):
        sense = {"id": f"t-{room}", "type": "sense", "name": "Temperature"}
        body = {"bridge_id": room, "capabilities": [sense]}
        home.served.request("POST", f"{at}/capabilities/register", home.token, body)
    for room in ("kitchen", "bath"):
        body = {"capability_id": f"t-{room}", "data": {"in": room}}
        assert home.served.request("POST", f"{at}/sense", home.token, body).status_code == 201
    told = home.call("get_context")["pending_senses"]
    assert [each["data"]["in"] for each in told] == ["kitchen", "bath"]


def test_a_sense_without_an_id_is_the_same_when_it_is_registered_again(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridges, "MAX_CAPABILITIES", 1)
    body = {"capabilities": [{"type": "sense", "name": "Temperature"}]}
    at = f"/v1/beings/{home.being}/capabilities/register"
    for _ in range(3):
        assert home.served.request("POST", at, home.token, body).status_code == 201


@pytest.mark.parametrize("others", [0, 60])
def test_senses_are_shown_once_after_an_import_that_numbers_them_anew(
    tmp_path: Path, others: int
) -> None:
    def told(memory: Commonplace, being: str) -> list[Any]:
        return [each["data"] for each in bridges.pending_senses(memory, being, mark_shown=True)]

    def sense(memory: Commonplace, being: str, data: str) -> None:
        seen = {"sense_id": data, "capability_id": "eye", "data": data}
        memory.events.record(bridges.SENSE_EVENT, being, seen)

    file = tmp_path / "export.jsonl"
    with Commonplace(tmp_path / "old", embedding="none") as memory:
        gone = [memory.remember(f"one of many {n}").id for n in range(30)]
        being = beings.create(memory, "Aria").id
        sense(memory, being, "a cat")
        assert told(memory, being) == ["a cat"]
        memory.purge(*gone)
        with lease(memory) as space, file.open("w") as written:
            export_space(space, written.write)
    with Commonplace(tmp_path / "new", embedding="none") as memory:
        for n in range(others):
            memory.remember(f"already here {n}")
        with lease(memory) as space:
            import_file(space, file, trust_file=True)
        assert told(memory, being) == []
        sense(memory, being, "a dog")
        assert told(memory, being) == ["a dog"]
        assert told(memory, being) == []


def test_the_history_of_senses_counts_all_of_them(home: Home) -> None:
    memory = Commonplace(library=home.served.made.parts.library).at(home.space)
    with memory.unit("senses"):
        for number in range(1_105):
            sense = {"capability_id": "rare" if number < 3 else "eye", "data": number}
            memory.events.record(bridges.SENSE_EVENT, home.being, sense)

    def asked(query: str) -> tuple[int, list[int]]:
        url = f"/v1/beings/{home.being}/sense/history{query}"
        answer = home.served.request("GET", url, home.token).json()
        return answer["total"], [each["data"] for each in answer["history"]]

    assert asked("") == (1_105, list(range(1_104, 1_084, -1)))
    assert asked("?capability_id=rare&limit=2") == (3, [2, 1])
    assert asked("?capability_id=none") == (0, [])


@pytest.mark.parametrize("message", [
    {"type": "sense", "capability_id": "eye", "data": 1},
    {"type": "act_result", "act_id": "x", "status": "completed"},
    {"type": "nothing"},
    {"type": "register", "capabilities": "many"},
    {"type": "register", "capabilities": [{"type": "fly", "name": "x"}]},
    {"type": "register", "capabilities": [{"type": "act"}]},
    ["a list"],
])  # fmt: skip
def test_a_message_out_of_place_is_an_error_and_the_line_stays_open(
    home: Home, message: Any
) -> None:
    with home.socket() as socket:
        hear(socket)
        socket.send(json.dumps(message))
        assert hear(socket)["type"] == "error"
        say(socket, type="pong")
        say(socket, type="register", capabilities=[])
        assert hear(socket)["type"] == "registered"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 20_000, "[1,", "\u0000"])
def test_a_text_that_is_no_json_is_an_error_and_the_line_stays_open(home: Home, text: str) -> None:
    with home.socket() as socket:
        hear(socket)
        socket.send(text)
        assert hear(socket)["type"] == "error"
        say(socket, type="register", capabilities=[])
        assert hear(socket)["type"] == "registered"


def test_disconnect_ends_it(home: Home) -> None:
    with home.bridge() as socket:
        say(socket, type="disconnect")
        with pytest.raises(ConnectionClosed):
            hear(socket)


def test_a_token_may_stand_in_the_address(home: Home) -> None:
    with home.socket(additional_headers={}, query=f"?token={home.token}") as socket:
        assert hear(socket)["type"] == "connected"


def refused(socket: ClientConnection) -> int:
    assert hear(socket)["type"] == "error"
    with pytest.raises(ConnectionClosed) as closed:
        hear(socket)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


def test_who_is_not_let_in_hears_an_error_and_1008(home: Home, served: Served) -> None:
    with home.socket(token="brt_nonsense") as socket:
        assert refused(socket) == 1008
    with home.socket(being=str(uuid.uuid4())) as socket:
        assert refused(socket) == 1008
    with home.socket(being=served.being(space=f"{home.space}-x")) as socket:
        assert refused(socket) == 1008
    with home.socket(token=served.token(space=home.space, read_only=True)) as socket:
        assert refused(socket) == 1008


def test_a_page_of_another_site_opens_no_socket(home: Home) -> None:
    with pytest.raises(InvalidStatus), home.socket(origin="https://evil.example"):
        pass
    with home.served.made.parts.library.lease(home.space) as opened:
        refused = audit.listing(opened.store, limit=1)[0]
    assert refused.error.startswith("ADDRESS") and not refused.success


def test_no_other_path_opens_a_socket(home: Home) -> None:
    url = home.served.base.replace("http", "ws")
    headers = {"authorization": f"Bearer {home.token}"}
    for path in ("/mcp", "/v1/llm-key", "/health"):
        with pytest.raises(InvalidStatus), connect(url + path, additional_headers=headers):
            pass


def test_an_act_of_another_being_is_no_tool(home: Home, served: Served) -> None:
    other = served.being("Other", home.space)
    with home.bridge():
        answer = served.call(f"/mcp/{other}", home.token, "act_desk_lamp_", action="on")
        assert "error" in answer.json()

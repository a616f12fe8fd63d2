"""The WebSocket of a bridge: it registers capabilities, sends sensed data, carries out acts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from commonplace.dialects.being import bridges
from commonplace.dialects.rest import Exchange
from commonplace.errors import CommonplaceError, InvalidInput

PING_SECONDS = 30.0
UNANSWERED_PINGS = 3


async def connect(exchange: Exchange) -> None:
    """Serve the WebSocket of a bridge until either side closes it."""
    socket = exchange.request
    assert isinstance(socket, WebSocket)
    await socket.accept()
    try:
        let_in = await exchange.perform({"being_id": socket.path_params["being_id"]})
    except CommonplaceError:
        await socket.send_json({"type": "error", "message": "Unauthorized"})
        await socket.close(1008)
        return
    await _Conversation(exchange, socket, let_in["space"], let_in["being"]).run()


@dataclass
class _Conversation:
    """The connection of one bridge."""

    exchange: Exchange
    socket: WebSocket
    space: str
    being: str
    bridge: bridges.Bridge | None = None
    unanswered: int = 0
    """The number of pings that the bridge has not answered."""
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    async def run(self) -> None:
        """Handle messages until either side closes the socket."""
        await self._reply({"type": "connected", "being_id": self.being})
        pinging = asyncio.create_task(self._ping())
        try:
            while True:
                try:
                    message = json.loads(await self.socket.receive_text())
                except (ValueError, KeyError, RecursionError):
                    await self._send_error("A message must be a text frame with a JSON object.")
                    continue
                if not isinstance(message, dict):
                    await self._send_error("A message must be a JSON object.")
                    continue
                if message.get("type") == "disconnect":
                    await self.socket.close(1000)
                    return
                await self._handle(message)
        except WebSocketDisconnect:
            pass
        finally:
            pinging.cancel()
            self._disconnect()

    async def _handle(self, message: dict[str, Any]) -> None:
        self.unanswered = 0
        kind = message.get("type")
        if kind == "register":
            await self._register(message)
        elif kind == "pong":
            pass
        elif kind not in ("sense", "act_result"):
            await self._send_error("Unknown message type.")
        elif self.bridge is None:
            await self._send_error("Send a register message first.")
        elif kind == "sense":
            await self._store_sense(message)
        else:
            status = message.get("status")
            if status not in ("completed", "failed"):
                await self._send_error("status must be completed or failed.")
            elif not self.bridge.answer(str(message.get("act_id")), status, message.get("result")):
                await self._send_error("No pending act has this id.")

    async def _register(self, message: dict[str, Any]) -> None:
        capabilities = message.get("capabilities")
        try:
            if not isinstance(capabilities, list) or len(capabilities) > bridges.MAX_CAPABILITIES:
                raise InvalidInput(
                    f"capabilities must be a list of at most {bridges.MAX_CAPABILITIES} items."
                )
            bridge = bridges.Bridge(
                str(message.get("bridge_id") or uuid.uuid4())[:200],
                str(message.get("bridge_name") or "")[:200],
                tuple(bridges.parse_capability(each) for each in capabilities),
                self._send,
            )
            arguments = {
                "being_id": self.being,
                "bridge_id": bridge.id,
                "bridge_name": bridge.name,
                "capabilities": [each.as_dict() for each in bridge.capabilities],
            }
            await self.exchange.perform(arguments, "register_capabilities")
            self._disconnect()
            bridges.connect(self.space, self.being, bridge)
        except CommonplaceError as error:
            await self._send_error(str(error))
            return
        self.bridge = bridge
        await self._reply(
            {"type": "registered", "bridge_id": bridge.id, "capabilities_count": len(capabilities)}
        )

    async def _store_sense(self, message: dict[str, Any]) -> None:
        arguments = {
            "being_id": self.being,
            "capability_id": str(message.get("capability_id")),
            "data": message.get("data"),
        }
        try:
            stored = await self.exchange.perform(arguments, "bridge_sense")
        except CommonplaceError as error:
            await self._send_error(str(error))
            return
        await self._reply({"type": "sense_ack", "sense_id": stored["sense_id"]})

    def _send(self, message: dict[str, Any]) -> None:
        """Send a message; worker threads may call this method."""
        self.loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._reply(message)))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            self.unanswered += 1
            if self.unanswered > UNANSWERED_PINGS:
                await self.socket.close(1001)
                return
            await self._reply({"type": "ping"})

    async def _send_error(self, message: str) -> None:
        await self._reply({"type": "error", "message": message})

    async def _reply(self, message: dict[str, Any]) -> None:
        # the client may have closed the socket
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self.socket.send_json(message)

    def _disconnect(self) -> None:
        if self.bridge is not None:
            bridges.disconnect(self.space, self.being, self.bridge)
            self.bridge = None

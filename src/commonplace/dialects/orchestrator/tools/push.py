"""Push notifications to the user's devices."""

from __future__ import annotations

from typing import Annotated, Any

from commonplace.dialects.contract import Call
from commonplace.dialects.orchestrator import pushing
from commonplace.dialects.orchestrator.answering import Answer, operation, tool
from commonplace.errors import InvalidInput, NotFound


@tool("write", {"sent": False, "info": ""}, open_world=True, stepwise=True)
def send_push_notification(
    call: Call,
    *,
    title: Annotated[str, "A few words."],
    message: Annotated[str, "What to tell the user."],
) -> Answer:
    """Send a push notification to the user's mobile device or browser."""
    sent, info = pushing.send(call.memory, call.caller.user, title, message, call.retry_key)
    return {"sent": sent, "info": info}


# What REST does


@operation("read", {"public_key": ""})
def show_push_key(call: Call) -> Answer:
    """The key that a browser subscribes with."""
    pusher = pushing.of(call.memory.library)
    if pusher is None or not pusher.vapid_key:
        raise NotFound(pushing.NOT_CONFIGURED)
    return {"public_key": pushing.public_key(pusher)}


@operation("write", {})
def register_subscription(
    call: Call,
    *,
    endpoint: str,
    keys: Annotated[Any, {"type": "object"}],
    expirationTime: Annotated[Any, {"type": ["number", "null"]}] = None,
) -> Answer:
    """Remember a browser of the caller's, as its PushSubscription says it."""
    del expirationTime
    record = pushing.register(call.memory, call.caller.user, endpoint, keys)
    return {"id": record.id}


@operation("write", {"forgotten": False})
def forget_subscription(call: Call, *, endpoint: str) -> Answer:
    """No longer send to a browser of the caller's."""
    if not endpoint:
        raise InvalidInput("endpoint is required")
    return {"forgotten": pushing.forget(call.memory, call.caller.user, endpoint)}

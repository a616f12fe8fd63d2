"""mem0's own library behind the messages of MCP, run by the Python that mem0 is installed in.

Usage: mem0_server.py DIRECTORY EMBEDDINGS_URL. Nothing is read by a language model (`infer=False`).
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(directory: str, url: str) -> None:
    """Answer one request a line."""
    from mem0 import Memory  # type: ignore[import-not-found]

    key = {"api_key": "none", "openai_base_url": url}
    store = {"path": directory, "on_disk": True, "embedding_model_dims": 384}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {
                "provider": "openai",
                "config": {**key, "model": "all-MiniLM-L6-v2", "embedding_dims": 384},
            },
            "llm": {"provider": "openai", "config": key},
            "history_db_path": f"{directory}/history.db",
        }
    )

    def answer(request: dict[str, Any]) -> Any:
        if request["method"] == "initialize":
            return {}
        given = request["params"]["arguments"]
        if request["params"]["name"] == "add":
            return memory.add(given["text"], user_id="bench", infer=False)
        return memory.search(given["query"], filters={"user_id": "bench"}, top_k=given["limit"])

    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": {"found": answer(request)}}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

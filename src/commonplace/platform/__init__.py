"""Services that several dialects share: language models, agents, durable work, fetching."""

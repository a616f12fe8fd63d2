"""Services for several dialects: language models, agents, durable workflows, fetching of URLs."""

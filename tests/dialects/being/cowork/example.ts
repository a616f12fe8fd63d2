import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "cowork-agent", version: "1.0.0" });
const transport = new StreamableHTTPClientTransport(
  new URL("https://worker.ruddia.com/mcp/"),
  {
    requestInit: {
      headers: { Authorization: "Bearer brt_xxxxxxxxxxxxxxxx" },
    },
  }
);

await client.connect(transport);

// Retrieve persona and snapshot at session start
const ctx = await client.callTool({ name: "get_context", arguments: {} });

// Per-turn: recall relevant memories before responding
const memories = await client.callTool({
  name: "recall",
  arguments: { user_message: userInput },
});

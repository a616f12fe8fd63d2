// The transport before streamable HTTP, as older clients still use it. Arguments: address, token.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";

import { tryOut } from "./tryout.ts";

const [address, token] = process.argv.slice(2) as [string, string];

const client = new Client({ name: "older-agent", version: "1.0.0" });
await client.connect(
  new SSEClientTransport(new URL(address), {
    requestInit: { headers: { Authorization: `Bearer ${token}` } },
  })
);

console.log(JSON.stringify(await tryOut(client)));
await client.close();

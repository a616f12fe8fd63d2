// The client of the being memory's contract, with the package it names. Arguments: address, token.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { tryOut } from "./tryout.ts";

const [address, token] = process.argv.slice(2) as [string, string];

const client = new Client({ name: "cowork-agent", version: "1.0.0" });
const transport = new StreamableHTTPClientTransport(
  new URL(address),
  {
    requestInit: {
      headers: { Authorization: `Bearer ${token}` },
    },
  }
);
await client.connect(transport);

console.log(JSON.stringify({ ...(await tryOut(client)), protocol: transport.protocolVersion }));
await transport.terminateSession();
await client.close();

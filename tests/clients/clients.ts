// Clients of both major versions of the SDK, one after the other. The argument says where:
// {address, token, being: {id, token}, command}, the last the command of a server over stdio.
import { Client as Newest, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StreamableHTTPClientTransport as Streamable } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

import { look, tryOut } from "./tryout.ts";

const { address, token, being, command } = JSON.parse(process.argv[2]);

const bearing = (token: string) => ({
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});

// As the being memory's contract shows it, with the package it names.
async function cowork(path: string, token: string, act = tryOut) {
  const client = new Client({ name: "cowork-agent", version: "1.0.0" });
  const transport = new Streamable(new URL(address + path), bearing(token));
  await client.connect(transport);
  const found = { ...(await act(client)), protocol: transport.protocolVersion };
  await transport.terminateSession();
  await client.close();
  return found;
}

// The transport before streamable HTTP, as older clients still use it.
async function older(path: string, token: string, act = tryOut) {
  const client = new Client({ name: "older-agent", version: "1.0.0" });
  await client.connect(new SSEClientTransport(new URL(address + path), bearing(token)));
  const found = await act(client);
  await client.close();
  return found;
}

// The second major version, which speaks the protocol version it is told to, or shakes hands.
async function newest(version: string, overHttp: boolean) {
  const client = new Newest(
    { name: "newest-agent", version: "1.0.0" },
    { versionNegotiation: { mode: version === "legacy" ? "legacy" : { pin: version } } }
  );
  const [program, ...args] = command;
  await client.connect(
    overHttp
      ? new StreamableHTTPClientTransport(new URL(`${address}/mcp/commonplace`), bearing(token))
      : new StdioClientTransport({ command: program, args })
  );
  const found = { ...(await tryOut(client)), protocol: client.getNegotiatedProtocolVersion() };
  await client.close();
  return found;
}

const tried: Record<string, () => Promise<object>> = {
  "cowork /mcp/": () => cowork("/mcp/", token),
  "cowork /mcp/ as a being": () => cowork("/mcp/", being.token, look),
  "cowork /mcp/{id}": () => cowork(`/mcp/${being.id}`, being.token, look),
  "cowork with a wrong token": () => cowork("/mcp/", "cpt_nothing"),
  "older": () => older("/mcp", token),
  "older /mcp/{id}": () => older(`/mcp/${being.id}`, being.token, look),
  "newest legacy http": () => newest("legacy", true),
  "newest 2026-07-28 http": () => newest("2026-07-28", true),
  "newest legacy stdio": () => newest("legacy", false),
  "newest 2026-07-28 stdio": () => newest("2026-07-28", false),
};

const found: Record<string, object> = {};
for (const [name, attempt] of Object.entries(tried)) {
  found[name] = await attempt().catch((error) => ({ failed: String(error) }));
}
console.log(JSON.stringify(found));
process.exit(0);

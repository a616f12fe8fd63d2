// The second major version of the SDK. Arguments: "legacy" or a protocol version, then either
// an address and a token, or the command of a server that speaks over its standard streams.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { tryOut } from "./tryout.ts";

const [version, target, ...rest] = process.argv.slice(2) as [string, string, ...string[]];

const client = new Client(
  { name: "newest-agent", version: "1.0.0" },
  { versionNegotiation: { mode: version === "legacy" ? "legacy" : { pin: version } } }
);
const transport = target.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(target), {
      requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } },
    })
  : new StdioClientTransport({ command: target, args: rest });
await client.connect(transport);

console.log(
  JSON.stringify({ ...(await tryOut(client)), protocol: client.getNegotiatedProtocolVersion() })
);
await client.close();

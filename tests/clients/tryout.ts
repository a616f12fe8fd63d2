// What every client here does once it is connected: look, store, find, and ask for too much.
type Result = { isError?: boolean; structuredContent?: any };

type Connected = {
  getServerVersion(): { name: string } | undefined;
  listTools(): Promise<{ tools: { name: string }[] }>;
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<any>;
};

export async function tryOut(client: Connected) {
  const { tools } = await client.listTools();
  const stored: Result = await client.callTool({
    name: "remember",
    arguments: { text: "The heron nests by the weir.", tags: ["birds"] },
  });
  const found: Result = await client.callTool({
    name: "recall",
    arguments: { query: "heron weir", limit: 1 },
  });
  const refused: Result = await client.callTool({ name: "recall", arguments: { limit: 1 } });
  return {
    server: client.getServerVersion()?.name,
    tools: tools.map((tool) => tool.name),
    stored: stored.structuredContent.id,
    found: found.structuredContent.memories[0].text,
    refused: refused.isError,
  };
}

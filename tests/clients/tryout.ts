// What the clients here do once they are connected.
type Result = { isError?: boolean; structuredContent?: any };

type Connected = {
  getServerVersion(): { name: string } | undefined;
  listTools(): Promise<{ tools: { name: string }[] }>;
  callTool(call: { name: string; arguments: Record<string, unknown> }): Promise<any>;
};

// Look, store, find, and ask for too much.
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

// What a being is asked first.
export async function look(client: Connected): Promise<any> {
  const { tools } = await client.listTools();
  const context = await client.callTool({ name: "get_context", arguments: {} });
  return {
    server: client.getServerVersion()?.name,
    tools: tools.map((tool) => tool.name),
    context: context.content[0].text,
  };
}

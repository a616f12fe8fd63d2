
// What follows is ours: the rest of a being's day.
function said(result: any): string {
  if (result.isError) throw new Error(JSON.stringify(result));
  return result.content[0].text;
}
async function call(name: string, given: object): Promise<string> {
  return said(await client.callTool({ name, arguments: given as any }));
}
const known = JSON.parse(said(ctx));
if (known.metadata.soul_name !== "Aria") throw new Error("not the being that was asked for");
if (!said(memories).includes("No related")) throw new Error("it remembers what never was");
for (let number = 0; number < 10; number++) {
  const scene = { action: `Watered the garden, time ${number}`, actors: ["Mika"], when: ["2026-04-14"] };
  const told = await call("update_notes", { scenes: [scene] });
  if (!told.startsWith("ok")) throw new Error(told);
}
for (let tries = 0; ; tries++) {
  const clusters = await call("recall_memory", {});
  if (clusters.includes("Watered the garden")) break;
  if (tries > 100) throw new Error("no patrol came");
  await new Promise((done) => setTimeout(done, 100));
}
console.log("a being's day, through the official TypeScript client: ok");
await client.close();

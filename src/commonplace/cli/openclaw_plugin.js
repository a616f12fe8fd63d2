import { createHash } from "node:crypto";

function textOf(content) {
  if (typeof content === "string") return content;
  return (Array.isArray(content) ? content : [])
    .filter((part) => part?.type === "text" && typeof part.text === "string")
    .map((part) => part.text)
    .join("\n\n");
}

/** Whether a person began the turn, and not a timer or another agent. */
function fromPerson({ trigger, sessionKey }) {
  return (!trigger || trigger === "user") && !/:(?:subagent|cron|hook):/.test(sessionKey ?? "");
}

/** A message as a line of a transcript. Messages have a time instead of an id; their text may change. */
function line(session, cwd, message) {
  const text = textOf(message.content);
  const known = [session, message.role, message.timestamp ?? text].join("\0");
  const id = createHash("sha256").update(known).digest("hex").slice(0, 32);
  return { cwd, id, role: message.role, at: message.timestamp, text };
}

export default {
  id: "commonplace",
  name: "Commonplace",
  description: "The memory that every agent of this machine shares.",
  register(api) {
    const begun = new Set();

    async function capture(name, event, context) {
      try {
        const session = context.sessionId ?? context.sessionKey;
        if (!session || !fromPerson(context)) return;
        const cwd = context.workspaceDir ?? "";
        const said = (event.messages ?? [])
          .filter((each) => each?.role === "user" || each?.role === "assistant")
          .map((each) => line(session, cwd, each));
        const path = written("openclaw", session, said);
        if (path) await hook({ hook_event_name: name, session_id: session, cwd, transcript_path: path });
      } catch {
        // the agent goes on without its memory
      }
    }

    api.on("before_prompt_build", async (event, context) => {
      const session = context.sessionId ?? context.sessionKey;
      if (!session || !fromPerson(context)) return undefined;
      const base = { session_id: session, cwd: context.workspaceDir ?? "" };
      const prompt = (event.currentUserMessage ?? event.prompt ?? "").replace(PRIVATE, "");
      const found = [];
      if (!begun.has(session)) {
        begun.add(session);
        found.push(await hook({ ...base, hook_event_name: "SessionStart", source: "startup" }));
      }
      if (prompt.trim()) found.push(await hook({ ...base, hook_event_name: "UserPromptSubmit", prompt }));
      const text = found.filter(Boolean).join("\n\n");
      return text ? { prependContext: text } : undefined;
    });
    api.on("agent_end", (event, context) => capture("Stop", event, context));
    api.on("before_compaction", async (event, context) => {
      await capture("PreCompact", event, context);
      begun.delete(context.sessionId ?? context.sessionKey); // what matters is given back with the next message
    });
  },
};

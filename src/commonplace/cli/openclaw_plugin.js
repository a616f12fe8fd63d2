import { createHash } from "node:crypto";

function textOf(content) {
  if (typeof content === "string") return content;
  return (Array.isArray(content) ? content : [])
    .filter((part) => part?.type === "text" && typeof part.text === "string")
    .map((part) => part.text)
    .join("\n\n");
}

/** Whether a person wrote a message or began a turn, as far as OpenClaw says where it comes from. */
function isPersonal(provenance) {
  return !provenance || provenance.kind === "external_user";
}

/** Whether a person began the turn, and not a timer or another agent. */
function fromPerson({ trigger, sessionKey, inputProvenance }) {
  if (trigger && trigger !== "user") return false;
  return isPersonal(inputProvenance) && !/:(?:subagent|cron|hook):/.test(sessionKey ?? "");
}

/**
 * What people and the assistant said, as lines of a transcript.
 *
 * Messages have no id. Those of the assistant keep their time; a user's message gets another time, key
 * and text when its turn is over, so it is known by the run that answered it.
 */
function linesOf({ session, cwd, run }, messages, otherRuns) {
  const lines = [];
  const counts = new Map();
  const runs = runsOf(messages, run);
  let personal = true;
  messages.forEach((message, index) => {
    const { role, content, timestamp } = message ?? {};
    if (role !== "user" && role !== "assistant") return;
    const turn = runs[index];
    if (role === "user") personal = isPersonal(message.provenance);
    if (!personal || otherRuns.has(turn)) return;
    const number = counts.get(turn) ?? 0;
    if (role === "user") counts.set(turn, number + 1);
    const identity = role === "user" && turn ? [turn, number] : [timestamp ?? textOf(content)];
    const id = createHash("sha256").update([session, role, ...identity].join("\0")).digest("hex").slice(0, 32);
    lines.push({ cwd, id, role, at: timestamp, text: textOf(content) });
  });
  return lines;
}

/** The run of each message: that of the answer after it, or the current one; undefined if unknown. */
function runsOf(messages, current) {
  const runs = [];
  // Earlier messages are marked, unless OpenClaw is too old; then no message has a known run.
  const marked = messages.some((each) => each?.__openclaw);
  if (!marked && messages.filter((each) => each?.role === "user").length > 1) return runs;
  let run = current;
  let stored = false; // messages of the turn that runs now are not, and do not name their run
  for (const message of [...messages].reverse()) {
    const about = message?.__openclaw;
    if (about && !stored) [stored, run] = [true, undefined];
    if (message?.role === "assistant") run = stored ? about?.runId : current;
    runs.unshift(run);
    if (message?.role === "user") run = undefined; // an earlier message without an answer
  }
  return runs;
}

export default {
  id: "commonplace",
  name: "Commonplace",
  description: "The memory that every agent of this machine shares.",
  register(api) {
    const begun = new Set(); // sessions that were given what matters at their start
    const places = new Map(); // by session key; an event may have nothing but the key
    const otherRuns = new Set(); // runs that no person began

    function placeOf({ sessionKey, sessionId, workspaceDir, runId }) {
      const known = places.get(sessionKey) ?? {};
      const session = sessionId ?? known.session ?? sessionKey;
      const place = { session, cwd: workspaceDir ?? known.cwd ?? "", run: runId ?? known.run };
      if (sessionKey) places.set(sessionKey, place);
      return place;
    }

    async function capture(name, event, context) {
      try {
        const place = placeOf(context);
        if (!place.session || !fromPerson(context)) return;
        const path = written("openclaw", place.session, linesOf(place, event.messages ?? [], otherRuns));
        // Before a compaction there may be no messages; those of earlier turns are stored.
        if (!path && name !== "PreCompact") return;
        const transcript_path = path ?? transcriptFile("openclaw", place.session);
        await hook({ hook_event_name: name, session_id: place.session, cwd: place.cwd, transcript_path });
      } catch {
        // the agent goes on without its memory
      }
    }

    api.on("before_prompt_build", async (event, context) => {
      const { session, cwd, run } = placeOf(context);
      if (run && !fromPerson(context)) otherRuns.add(run);
      if (!session || !fromPerson(context)) return undefined;
      const base = { session_id: session, cwd };
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
    api.on("agent_end", async (event, context) => {
      const { run } = placeOf(context);
      if (!otherRuns.delete(run)) await capture("Stop", event, context);
    });
    api.on("before_compaction", async (event, context) => {
      await capture("PreCompact", event, context);
      begun.delete(placeOf(context).session); // the next message gets the start context again
    });
  },
};

function textOf(parts) {
  return parts
    .filter((part) => part.type === "text" && !part.synthetic && !part.ignored)
    .map((part) => part.text)
    .join("\n\n");
}

/** Write a session's messages as lines; null for a sub-agent's, and if there are none. */
async function transcript(client, session, directory) {
  const about = (await client.session.get({ path: { id: session } })).data;
  if (!about || about.parentID) return null;
  const messages = (await client.session.messages({ path: { id: session } })).data ?? [];
  const said = messages
    .filter((each) => each.info.role === "user" || (each.info.time?.completed && !each.info.summary))
    .map(({ info, parts }) => ({
      cwd: about.directory || directory, id: info.id, role: info.role, at: info.time?.created, text: textOf(parts),
    }));
  return written("opencode", session, said);
}

export const Commonplace = async ({ client, directory }) => {
  const begun = new Set();
  const ids = new Map();

  async function capture(session, name) {
    try {
      const path = await transcript(client, session, directory);
      const event = { hook_event_name: name, session_id: session, cwd: directory };
      if (path) await hook({ ...event, transcript_path: path });
    } catch {
      // the agent goes on without its memory
    }
  }

  // Capture the newest sessions once more: one that was killed has lines that were not captured.
  setTimeout(async () => {
    try {
      const known = (await client.session.list()).data ?? [];
      known.sort((one, other) => (other.time?.updated ?? 0) - (one.time?.updated ?? 0));
      for (const each of known.slice(0, 3)) await capture(each.id, "Stop");
    } catch {
      // there is no list yet
    }
  }, 2000).unref?.();

  return {
    "chat.message": async (input, output) => {
      const prompt = textOf(output.parts).replace(PRIVATE, "");
      const base = { session_id: input.sessionID, cwd: directory };
      const found = [];
      if (!begun.has(input.sessionID)) {
        begun.add(input.sessionID);
        found.push(await hook({ ...base, hook_event_name: "SessionStart", source: "startup" }));
      }
      if (prompt.trim()) found.push(await hook({ ...base, hook_event_name: "UserPromptSubmit", prompt }));
      for (const text of found.filter(Boolean)) {
        const number = (ids.get(input.sessionID) ?? 0) + 1;
        ids.set(input.sessionID, number);
        const id = `prt_commonplace${Date.now().toString(36)}${number}`;
        output.parts.push({ id, sessionID: input.sessionID, messageID: output.message.id, type: "text", text, synthetic: true });
      }
    },
    "experimental.session.compacting": async (input, output) => {
      await capture(input.sessionID, "PreCompact");
      begun.delete(input.sessionID); // the next message gets the start context again
    },
    event: async ({ event }) => {
      if (event.type === "session.idle") await capture(event.properties.sessionID, "Stop");
    },
  };
};

import { spawn } from "node:child_process";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

const COMMAND = COMMAND_WORDS;
const SECONDS = 5;
const PRIVATE = /<private(?:\s[^<>]*)?>[\s\S]*?(?:<\/private>|$)/gi;

function dataDirectory() {
  const given = COMMAND.indexOf("--data");
  if (given >= 0) return COMMAND[given + 1];
  return process.env.COMMONPLACE_DATA || join(homedir(), ".commonplace");
}

/** The context that `commonplace-hook` returns for an event; empty if there is none, or on an error. */
function hook(event) {
  return new Promise((done) => {
    try {
      const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] });
      const late = setTimeout(() => child.kill(), SECONDS * 1000);
      let said = "";
      child.stdout.on("data", (piece) => { said += piece; });
      child.on("error", () => done(""));
      child.stdin.on("error", () => {});
      child.on("close", () => {
        clearTimeout(late);
        try {
          done(JSON.parse(said).hookSpecificOutput?.additionalContext ?? "");
        } catch {
          done("");
        }
      });
      child.stdin.end(JSON.stringify(event));
    } catch {
      done("");
    }
  });
}

/** The file that what was said in a session is written to. */
function transcriptFile(client, session) {
  return join(dataDirectory(), "transcripts", client, session.replace(/[^A-Za-z0-9_-]/g, "_") + ".jsonl");
}

/** Write the messages of a session to a transcript for `commonplace-hook`; return its path, or null without messages. */
function written(client, session, said) {
  const lines = said
    .map((each) => ({ transcript: client, session, ...each, text: each.text.replace(PRIVATE, "") }))
    .filter((line) => line.text.trim());
  if (!lines.length) return null;
  const file = transcriptFile(client, session);
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  writeFileSync(file + ".new", lines.map((line) => JSON.stringify(line) + "\n").join(""), { mode: 0o600 });
  renameSync(file + ".new", file);
  return file;
}

// Forms for parts of the configuration; the settings and the set-up share them.

import {post, put} from "../../api.js";
import {el, shown} from "../../dom.js";
import {busy, button, field, form, select} from "../../ui.js";
import {check} from "./common.js";

const MASKED = /^\*\*\*\[.*\]\*\*\*$/;
const BACKENDS = [["claude", "Claude (Anthropic)"], ["codex-mcp", "OpenAI or compatible"]];
const EFFORTS = [["", "as the model does"], ["low", "low"], ["medium", "medium"], ["high", "high"], ["max", "max"]];

/** A field for a secret, which is never shown: what is typed replaces it, nothing typed keeps it. */
function secret(label, name, stored, hint = "") {
  const isSet = MASKED.test(stored ?? "");
  const control = el("input", {name, type: "password", autocomplete: "off", spellcheck: "false", maxlength: "1000"});
  return [
    field(label, control, [isSet ? "One is stored. Leave this empty to keep it." : "None is stored.", hint].filter(Boolean).join(" ")),
    isSet && check("Remove the stored one", {name: `remove ${name}`}),
  ];
}

/** The new value of a secret: empty to remove it, undefined to keep it. */
function secretOf(values, name) {
  if (values[`remove ${name}`]) return "";
  return values[name] || undefined;
}

function numberField(label, name, value, least, most, hint = "") {
  return field(label, el("input", {name, type: "number", min: String(least), max: String(most), step: "1", required: true, value: String(value)}), hint);
}

function text(label, name, value, hint = "") {
  return field(label, el("input", {name, value: value ?? "", autocomplete: "off", spellcheck: "false"}), hint);
}

/** A button that tries what is stored with one real call, and says what came of it. */
export function testButton(what, label) {
  const told = el("p", {role: "status", class: "hint"});
  const made = button(label, {onclick: async () => {
    told.replaceChildren("Asking…");
    try {
      const {ok, message} = await busy(made, () => post("/api/setup/check", {what}));
      told.replaceChildren(ok ? "✓ " : "✗ ", ...shown(message));
    } catch (error) {
      told.replaceChildren("✗ ", ...shown(error.message));
    }
  }});
  return el("div", {class: "test"}, made, told);
}

function saving(part, made, after) {
  return {submit: async (values) => { await put("/api/config", {[part]: made(values)}); await after(); }};
}

export function modelForm({agent}, after) {
  return form(saving("agent", (values) => ({
    backend: values.backend, model: values.model.trim(), effort: values.effort || null,
    max_turns: Number(values.max_turns), timeout: Number(values.timeout) * 1000, api_key: secretOf(values, "api_key"),
  }), after),
  field("Provider", select(BACKENDS, agent.backend, {name: "backend"})),
  text("Model", "model", agent.model, "Such as claude-sonnet-4-6 or gpt-5-mini."),
  ...secret("Key", "api_key", agent.api_key, "A key in the server's environment (COMMONPLACE_LLM_KEY) goes before it."),
  field("Effort", select(EFFORTS, agent.effort ?? "", {name: "effort"})),
  numberField("Requests a run", "max_turns", agent.max_turns, 1, 100),
  numberField("Seconds a run", "timeout", Math.round(agent.timeout / 1000), 1, 2_147_483));
}

export function discordForm({discord}, after) {
  return form(saving("discord", (values) => ({
    enabled: Boolean(values.enabled), token: secretOf(values, "token"), default_channel_id: values.default_channel_id.trim(),
  }), after),
  check("Send to Discord", {name: "enabled", checked: discord.enabled}),
  ...secret("Bot token", "token", discord.token),
  text("Channel", "default_channel_id", discord.default_channel_id, "Its id, which is a number. Notices of the heartbeat go there."));
}

export function slackForm({slack}, after) {
  return form(saving("slack", (values) => ({
    enabled: Boolean(values.enabled), bot_token: secretOf(values, "bot_token"), app_token: secretOf(values, "app_token"),
  }), after),
  check("Send to Slack", {name: "enabled", checked: slack.enabled}),
  ...secret("Bot token", "bot_token", slack.bot_token, "It begins with xoxb-."),
  ...secret("App token", "app_token", slack.app_token));
}

/** Telegram and Chatwork, which the configuration knows and this server does not use. */
export function otherChannelForm(name, key, stored, after) {
  return form(saving(name, (values) => ({enabled: Boolean(values.enabled), [key]: secretOf(values, key)}), after),
    check("On", {name: "enabled", checked: stored.enabled}), ...secret("Token", key, stored[key]));
}

export function heartbeatForm({heartbeat}, after) {
  return form(saving("heartbeat", (values) => ({
    enabled: Boolean(values.enabled), interval: Number(values.minutes) * 60_000,
    quiet_start: Number(values.quiet_start), quiet_end: Number(values.quiet_end), notify_channel_id: values.notify_channel_id.trim(),
  }), after),
  check("Run the heartbeat", {name: "enabled", checked: heartbeat.enabled}),
  el("p", {class: "hint"}, "At each interval an agent reads HEARTBEAT.md in the data directory and does what it says. Without that file nothing is asked."),
  numberField("Minutes between heartbeats", "minutes", Math.round(heartbeat.interval / 60_000), 1, 35_791),
  el("div", {class: "pair"},
    numberField("Quiet from (hour)", "quiet_start", heartbeat.quiet_start, 0, 23), numberField("Quiet until (hour)", "quiet_end", heartbeat.quiet_end, 0, 23)),
  text("Channel for notices", "notify_channel_id", heartbeat.notify_channel_id, "A Discord channel; empty for the usual one."));
}

export function rolesForm({roles}, after) {
  return form({submit: async (values) => {
    let given;
    try {
      given = JSON.parse(values.roles);
    } catch {
      throw new Error("This is not valid JSON.");
    }
    await put("/api/config", {roles: given});
    await after();
  }}, field("Roles", el("textarea", {name: "roles", rows: "6", spellcheck: "false", value: JSON.stringify(roles, null, 2)}),
    "JSON with definitions and sourceMapping. What is given is added to what is stored."));
}

/** The form of an agent of the team. */
export function agentForm(agent, close) {
  return form({
    cancel: () => close(),
    submit: async (values) => {
      await put(`/api/multi-agent/agents/${encodeURIComponent(agent.id)}`, {
        display_name: values.display_name, tier: Number(values.tier), backend: values.backend, model: values.model.trim(),
        enabled: Boolean(values.enabled), can_delegate: Boolean(values.can_delegate), trigger_prefix: values.trigger_prefix.trim() || null,
      });
      close(true);
    },
  },
  check("On", {name: "enabled", checked: agent.enabled}),
  field("Name", el("input", {name: "display_name", required: true, maxlength: "100", value: agent.display_name})),
  field("Tier", select([["1", "1: may also send messages and make pages"], ["2", "2: may also save"], ["3", "3: may only read"]], String(agent.tier), {name: "tier"})),
  check("May give tasks to others (tier 1)", {name: "can_delegate", checked: agent.can_delegate}),
  field("Provider", select(BACKENDS, agent.backend, {name: "backend"})),
  text("Model", "model", agent.model),
  text("Prefix", "trigger_prefix", agent.trigger_prefix, "A prompt that begins with it goes to this agent."));
}

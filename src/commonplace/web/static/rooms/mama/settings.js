// Settings: channels, the agent, the heartbeat, the team, jobs, spending, the log.

import {get, post, put, remove} from "../../api.js";
import {el, moment, number, quoted, shown} from "../../dom.js";
import {busy, button, card, confirmed, dialog, field, form, iconButton, linkButton, page, toast} from "../../ui.js";
import {atSecond, check, chip, optional, table, unavailable} from "./common.js";
import {agentForm, discordForm, heartbeatForm, modelForm, otherChannelForm, rolesForm, slackForm, testButton} from "./forms.js";

const LINES = 200;

export async function render({signal, refresh}) {
  const [config, jobs, team, spent, log] = await Promise.all([
    get("/api/config", {}, {signal}), get("/api/cron", {}, {signal}), get("/api/multi-agent/agents", {}, {signal}),
    optional("/api/tokens/by-agent", {}, signal), optional("/api/logs/daemon", {tail: LINES}, signal),
  ]);
  const saved = async () => { await refresh(); toast("Saved."); };
  return page("Settings", {
    lede: "What is saved here takes effect at once.",
    actions: [linkButton("Set up step by step", "/setup"), button("Restart the server", {icon: "undo", onclick: restart})],
  },
  folded("Agent", config.agent.model, modelForm(config, saved), testButton("llm", "Test the model")),
  folded("Discord", state(config.discord.enabled), discordForm(config, saved), testButton("discord", "Test Discord")),
  folded("Slack", state(config.slack.enabled), slackForm(config, saved), testButton("slack", "Test Slack")),
  folded("Telegram and Chatwork", "", el("p", {class: "hint"}, "These are stored for MAMA's own server; nothing is sent there from here."),
    el("h3", {}, "Telegram"), otherChannelForm("telegram", "token", config.telegram, saved),
    el("h3", {}, "Chatwork"), otherChannelForm("chatwork", "api_token", config.chatwork, saved)),
  folded("Heartbeat", state(config.heartbeat.enabled), heartbeatForm(config, saved)),
  folded("Team", state(config.multi_agent.enabled), teamPart(config, team.agents, saved)),
  folded("Roles", "", rolesForm(config, saved)),
  jobsPart(jobs.jobs, refresh),
  card("Tokens by agent, 30 days", spent.error ? unavailable(spent.error) : spending(spent.value.agents)),
  logPart(log, signal));
}

function folded(title, told, ...content) {
  return el("details", {class: "card"}, el("summary", {}, el("h2", {}, title), told && [" ", el("span", {class: "hint"}, quoted(told))]), content);
}

const state = (enabled) => (enabled ? "on" : "off");

// Team

function teamPart(config, agents, saved) {
  const enabled = config.multi_agent.enabled;
  const toggle = button(enabled ? "Turn the team off" : "Turn the team on", {onclick: async () => {
    try {
      await busy(toggle, () => put("/api/config", {multi_agent: {enabled: !enabled}}));
      await saved();
    } catch (error) {
      toast(error.message, {error: true});
    }
  }});
  const edit = async (agent) => {
    if (await dialog(`Agent ${agent.id}`, (close) => agentForm(agent, close))) await saved();
  };
  return el("div", {class: "stack"},
    el("p", {}, "A prompt that begins with an agent's prefix goes to that agent. ", chip(enabled ? "on" : "off", enabled ? "kind" : "")), toggle,
    el("ul", {class: "entries"}, agents.map((agent) => el("li", {},
      el("div", {class: "grow"}, quoted(agent.display_name), el("p", {class: "hint"}, `tier ${agent.tier}, ${agent.model}, ${agent.trigger_prefix ?? "no prefix"}`)),
      !agent.enabled && chip("off"), button("Edit", {"aria-label": `Edit ${agent.id}`, onclick: () => edit(agent)})))));
}

// Jobs

function jobsPart(jobs, refresh) {
  const path = (job) => `/api/cron/${encodeURIComponent(job.id)}`;
  const acting = async (control, act, told) => {
    try {
      await busy(control, act);
      toast(told);
      await refresh();
    } catch (error) {
      toast(error.message, {error: true});
    }
  };
  return card("Jobs",
    el("div", {class: "actions"}, button("Add a job", {icon: "plus", onclick: () => add(refresh)})),
    jobs.length > 0 && el("ul", {class: "entries"}, jobs.map((job) => el("li", {},
      el("div", {class: "grow"}, quoted(job.name), el("p", {class: "hint"}, el("code", {}, job.cron_expr), job.enabled ? [", next ", moment(atSecond(job.next_run), {exact: true})] : ", off")),
      el("div", {class: "actions"}, button("Runs", {"aria-label": `Runs of ${job.name}`, onclick: () => showRuns(job, path(job))}),
      button(job.enabled ? "Turn off" : "Turn on", {"aria-label": `Turn ${job.name} ${job.enabled ? "off" : "on"}`,
        onclick: (event) => acting(event.currentTarget, () => put(path(job), {enabled: !job.enabled}), job.enabled ? "Turned off." : "Turned on.")}),
      iconButton(`Delete ${job.name}`, "trash", {onclick: async (event) => {
        const control = event.currentTarget;
        if (await confirmed(`Delete ${job.name}?`, "Its runs are deleted, too.", {action: "Delete"})) await acting(control, () => remove(path(job)), "Deleted.");
      }}))))));
}

async function add(refresh) {
  const made = await dialog("New job", (close) => form({
    action: "Add",
    cancel: () => close(),
    submit: async ({name, cron_expr, prompt, enabled}) => {
      await post("/api/cron", {name, cron_expr: cron_expr.trim(), prompt, enabled: Boolean(enabled)});
      close(true);
    },
  },
  field("Name", el("input", {name: "name", required: true, maxlength: "200"})),
  field("When", el("input", {name: "cron_expr", required: true, maxlength: "200", placeholder: "0 9 * * *", spellcheck: "false"}),
    "Minute, hour, day, month, weekday, in local time; or @hourly, @daily and the like."),
  field("Prompt", el("textarea", {name: "prompt", required: true, maxlength: "20000", rows: "5", dir: "auto"})),
  check("On", {name: "enabled", checked: true})));
  if (made) { toast("Added."); await refresh(); }
}

async function showRuns(job, path) {
  let found;
  try {
    found = (await get(`${path}/logs`, {limit: 20})).logs;
  } catch (error) {
    toast(error.message, {error: true});
    return;
  }
  await dialog(`Runs of ${job.name}`, () => (found.length
    ? el("ul", {class: "entries tall", tabindex: "0", "aria-label": "Runs"}, found.map((run) => el("li", {},
      el("div", {class: "grow"}, moment(atSecond(run.started_at), {exact: true}), " ", chip(run.status, run.status === "failed" ? "warn" : ""),
        el("p", {dir: "auto"}, shown(run.error ?? run.output ?? ""))))))
    : el("p", {}, "It has not run yet.")), {wide: true});
}

// Spending and the log

function spending(agents) {
  if (!agents.length) return el("p", {class: "hint"}, "Nothing was asked of a model yet.");
  return table("Tokens by agent", ["Agent", "Runs", "Tokens in", "Tokens out", "Cost"], agents.map((one) => [
    quoted(one.agent_id), number(one.request_count), number(one.input_tokens), number(one.output_tokens),
    `$${one.cost_usd.toFixed(2)}${one.unpriced_requests ? " + unknown" : ""}`,
  ]));
}

function logPart(log, signal) {
  const lines = el("pre", {class: "tall", tabindex: "0", "aria-label": "The end of the server's log"});
  const show = (answer) => {
    if (answer.error) lines.replaceChildren(...shown(answer.error.message));
    else if (answer.value) lines.replaceChildren(...shown(answer.value.lines.join("\n")));
    requestAnimationFrame(() => { lines.scrollTop = lines.scrollHeight; }); // once it is on the page
  };
  show(log);
  const again = button("Read again", {onclick: async () => show(await busy(again, () => optional("/api/logs/daemon", {tail: LINES}, signal)))});
  return card("Log", lines, el("div", {class: "actions"}, again));
}

async function restart() {
  if (!(await confirmed("Restart the server?", "Running work gets ten seconds to end. The page goes on when the server is back.", {action: "Restart"}))) return;
  try {
    await post("/api/restart");
    toast("The server restarts.");
  } catch (error) {
    toast(error.message, {error: true});
  }
}

// Dashboard: the state of channels, agents, memory, jobs and spending.

import {post} from "../../api.js";
import {count, el, moment, number, quoted} from "../../dom.js";
import {busy, button, card, linkButton, page, toast} from "../../ui.js";
import {atSecond, chip, facts, optional, table, unavailable} from "./common.js";

const EVERY = 30_000; // milliseconds

export async function render({signal}) {
  const cards = el("div", {class: "grid"});
  const updated = el("p", {class: "hint", role: "status"});
  const update = async () => {
    const made = await built(signal, update);
    if (signal.aborted) return;
    cards.replaceChildren(...made);
    updated.replaceChildren("As of ", moment(new Date().toISOString(), {exact: true}), ".");
  };
  await update();
  const timer = setInterval(() => {
    // Do not replace the cards while one of them has the keyboard focus.
    if (!cards.contains(document.activeElement) && !document.hidden) update().catch(() => {});
  }, EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  return page("Dashboard", {
    lede: "Channels, agents, jobs and what they cost.",
    actions: [linkButton("Set up", "/setup", {icon: "gear"})],
  }, updated, cards);
}

async function built(signal, update) {
  const paths = ["/api/dashboard/status", "/api/cron", "/api/tokens/summary", "/api/multi-agent/status", "/api/multi-agent/delegations",
    "/api/mcp-servers", "/api/heartbeat"];
  const answers = await Promise.all(paths.map((path) => optional(path, {}, signal)));
  const [status, jobs, tokens, team, delegations, servers, heartbeat] = answers;
  if (status.error) throw status.error;
  const found = status.value, beat = heartbeat.value?.last_execution;
  return [
    part("Jobs", jobs, ({jobs: all}) => jobList(all, update)),
    part("Tokens", tokens, spending),
    card("Memory", facts([
      ["Memories", number(found.memory.total)], ["This week", number(found.memory.thisWeek)],
      ["This month", number(found.memory.thisMonth)], ["Checkpoints", number(found.memory.checkpoints)],
      ...Object.entries(found.memory.outcomes).map(([outcome, times]) => [`Outcome ${outcome}`, number(times)]),
    ]), topics(found.memory.topTopics)),
    card("Channels", el("ul", {class: "entries"}, Object.entries(found.gateways).map(([name, one]) =>
      el("li", {}, el("span", {}, named(name)), chip(one.configured ? (one.enabled ? "on" : "off") : "not set up", one.configured && one.enabled ? "kind" : ""))))),
    card("Agent", facts([
      ["Model", found.agent.model], ["Requests a run", number(found.agent.maxTurns)],
      ["Time a run", `${number(found.agent.timeout / 1000)} s`], ["Server", `version ${found.server.version}`],
      ["Started", moment(new Date(found.server.started_at).toISOString())],
      ["Heartbeat", found.heartbeat.enabled ? `every ${number(found.heartbeat.interval / 60_000)} minutes` : "off"],
      ["Last beat", beat && el("span", {}, moment(atSecond(beat.started_at)), " ", chip(beat.status))],
    ])),
    part("Team", team, teamList),
    part("Delegations", delegations, ({delegations: all}) => (all.length
      ? el("ul", {class: "entries"}, all.slice(0, 5).map((one) => el("li", {}, quoted(one.description), chip(one.status))))
      : el("p", {class: "hint"}, "No agent has given a task to another yet."))),
    card("Chats", el("p", {}, count(found.sessions.total, "session")), el("ul", {class: "entries"}, found.sessions.channels.slice(0, 5).map((one) =>
      el("li", {}, el("span", {}, `${one.source}, ${count(one.messageCount, "message")}`), moment(new Date(one.lastActive).toISOString()))))),
    part("MCP servers", servers, ({servers: all}) => (all.length
      ? el("ul", {class: "entries"}, all.map((one) => el("li", {}, quoted(one.name), chip(one.type))))
      : el("p", {class: "hint"}, "None is named in mcp-config.json. They are listed, never started."))),
  ];
}

function part(title, answer, show) {
  return card(title, answer.error ? unavailable(answer.error) : show(answer.value));
}

function named(word) {
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function topics(all) {
  return all.length > 0 && el("div", {class: "explained"}, el("h3", {}, "Top topics"), el("ul", {class: "chips"},
    all.map((one) => el("li", {class: "chip"}, quoted(one.topic), ` ${number(one.count)}`))));
}

function spending(sums) {
  const rows = [["24 hours", sums.today], ["7 days", sums.week], ["30 days", sums.month]].map(([name, one]) => [
    name, number(one.request_count), number(one.input_tokens + one.output_tokens),
    `$${one.cost_usd.toFixed(2)}${one.unpriced_requests ? " +" : ""}`,
  ]);
  const unknown = sums.month.unpriced_requests;
  return el("div", {}, table("Tokens and their cost", ["Last", "Runs", "Tokens", "Cost"], rows),
    unknown > 0 && el("p", {class: "hint"}, `The price of ${count(unknown, "run")} is not known, and not in the sum.`));
}

function teamList(team) {
  if (!team.enabled) return el("p", {class: "hint"}, "The team of agents is off. Turn it on in the settings.");
  return el("ul", {class: "entries"}, team.agents.map((one) =>
    el("li", {}, quoted(one.name), chip(`tier ${one.tier}`), chip(one.status, one.status === "busy" ? "kind" : ""))));
}

function jobList(all, update) {
  if (!all.length) return el("p", {class: "hint"}, "No jobs yet. Add one in the ", el("a", {href: "/viewer/settings"}, "settings"), ".");
  return el("ul", {class: "entries"}, all.map((job) => el("li", {},
    el("div", {class: "grow"}, quoted(job.name), el("p", {class: "hint"},
      job.enabled ? ["next ", moment(atSecond(job.next_run), {exact: true})] : "off")),
    button("Run", {icon: "play", "aria-label": `Run ${job.name}`, onclick: async (event) => {
      try {
        await busy(event.currentTarget, () => post(`/api/cron/${encodeURIComponent(job.id)}/run`));
        toast(`${job.name} runs.`);
        await update();
      } catch (error) {
        toast(error.message, {error: true});
      }
    }}))));
}

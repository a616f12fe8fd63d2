// The workspace: its agents, conversations, workflows and what they did.

import {patch, post} from "../../api.js";
import {count, el, moment, quoted, shown} from "../../dom.js";
import {busy, button, card, toast} from "../../ui.js";
import {conversation, folded, optional, part, tell} from "./common.js";

const HERE = "/v1/workspaces/current";

export function workspaceCard(workspace, context) {
  const {signal} = context;
  const agents = workspace.agents ?? [];
  return card("Workspace",
    el("p", {class: "muted"}, quoted(workspace.name), " · ", count(agents.length, "agent")),
    agents.length > 0 && el("ul", {class: "rows folds"}, agents.map((one) => el("li", {}, agentRow(one, context)))),
    !agents.length && el("p", {class: "muted"}, "No agents yet. They come with the first call of an agent, or with ", el("code", {}, "commonplace workspace create NAME"), "."),
    el("ul", {class: "rows folds"},
      el("li", {}, folded(el("strong", {}, "Conversations"), () => conversations(signal))),
      el("li", {}, folded(el("strong", {}, "Workflows"), () => workflows(context)))));
}

function agentRow(one, {may, signal}) {
  const root = `${HERE}/agents/${encodeURIComponent(one.slug)}`;
  return folded([el("strong", {}, quoted(one.name)), " ", el("span", {class: "muted"}, quoted(one.slug), " · ", quoted(one.role))], async () => {
    const told = await optional(`${root}/history`, signal);
    return [
      may("write") && part("Talk", conversation(one.name, async (message) => (await post(`${root}/messages`, {message})).response), ""),
      part("History", (told?.history ?? []).slice(0, 20).map((each) => el("p", {}, moment(each.created_at), " · ", quoted(each.title))), "Nothing is recorded of it."),
    ];
  });
}

async function conversations(signal) {
  const found = (await optional(`${HERE}/conversations`, signal))?.conversations ?? [];
  if (!found.length) return el("p", {class: "muted"}, "None yet.");
  return el("ul", {class: "plain-list"}, found.slice(0, 50).map((one) => el("li", {}, folded(
    [quoted(one.title), " ", el("span", {class: "muted"}, moment(one.updated_at))],
    async () => {
      const {messages = []} = await optional(`${HERE}/conversations/${encodeURIComponent(one.id)}/messages`, signal) ?? {};
      return el("ol", {class: "lines"}, messages.map((each) => el("li", {class: each.role === "user" ? "mine" : "theirs"},
        el("strong", {}, quoted(each.role)), el("p", {dir: "auto"}, shown(each.text)))));
    }))));
}

async function workflows({may, signal, refresh}) {
  const [defined, run] = await Promise.all([optional(`${HERE}/workflows`, signal), optional(`${HERE}/executions`, signal)]);
  const toggle = (one) => async (event) => {
    try {
      await busy(event.currentTarget, () => patch(`${HERE}/workflows/${encodeURIComponent(one.id)}`, {is_active: !one.is_active}));
      toast(one.is_active ? "Turned off." : "Turned on.");
      await refresh();
    } catch (error) {
      tell(error);
    }
  };
  return [
    part("Defined", defined?.workflows?.length > 0 && el("ul", {class: "rows"}, defined.workflows.map((one) => el("li", {},
      el("div", {class: "words"}, el("strong", {}, quoted(one.name)), el("p", {class: "muted"}, count(one.step_count, "step"), one.description && [" · ", quoted(one.description)])),
      may("write") && button(one.is_active ? "Turn off" : "Turn on", {kind: "quiet", "aria-label": `Turn ${one.name} ${one.is_active ? "off" : "on"}`, onclick: toggle(one)})))), "None."),
    part("Runs", run?.executions?.length > 0 && el("ul", {class: "rows"}, run.executions.slice(0, 30).map((one) => el("li", {},
      el("div", {class: "words"}, el("strong", {}, quoted(one.name)),
        el("p", {class: "muted"}, one.status, ` · step ${Math.min(one.current_step + 1, one.steps)} of ${one.steps} · `, moment(one.created_at), one.error && [" · ", quoted(one.error)]))))), "None yet."),
  ];
}

// What waits for a person: steps of workflows, and acts of beings.

import {post} from "../../api.js";
import {el, moment, quoted, shown} from "../../dom.js";
import {busy, button, card, toast} from "../../ui.js";
import {tell} from "./common.js";

/** A card with everything that waits; nothing if nothing does. */
export function waitingCard(executions, acts, context) {
  const rows = [
    ...executions.filter((one) => one.waits_for).map((one) => execution(one, context)),
    ...acts.flatMap(({being, actions}) => actions.map((one) => act(being, one, context))),
  ];
  return rows.length > 0 && card("Waiting for you", el("ul", {class: "rows"}, rows));
}

function execution({execution_id: id, name, current_step: step, steps, created_at: at, waits_for: next}, context) {
  const path = `/v1/workspaces/current/executions/${encodeURIComponent(id)}`;
  return el("li", {},
    el("div", {class: "words"},
      el("strong", {}, quoted(next.name)),
      el("p", {class: "muted"}, "Step ", String(step + 1), " of ", String(steps), " of ", quoted(name), " · by the agent ", quoted(next.agent_slug), " · begun ", moment(at)),
      el("p", {class: "asked", dir: "auto"}, shown(next.prompt))),
    decide(next.name, () => post(`${path}/approve`), "Approved. The step runs now.", () => post(`${path}/cancel`), "Refused: the workflow has ended.", context));
}

function act(being, one, context) {
  const path = `/v1/beings/${encodeURIComponent(being.id)}/act/pending`;
  const {id, created_at: at, status, capability_id: capability, ...rest} = one;
  return el("li", {},
    el("div", {class: "words"},
      el("strong", {}, quoted(capability ?? "An act")),
      el("p", {class: "muted"}, "of the being ", quoted(being.name ?? being.id), " · ", moment(at)),
      el("pre", {dir: "auto", tabindex: "0"}, shown(JSON.stringify(rest, null, 2)))),
    decide(capability ?? "the act", () => post(`${path}/approve`, {action_id: id}), "Approved.", () => post(`${path}/reject`, {action_id: id}), "Refused.", context));
}

function decide(name, approve, approved, refuse, refused, {may, refresh}) {
  const doing = (run, told) => async (event) => {
    try {
      await busy(event.currentTarget, run);
      toast(told);
      await refresh();
    } catch (error) {
      tell(error);
    }
  };
  return may("write") && el("div", {class: "actions"},
    button("Approve", {kind: "main", "aria-label": `Approve ${name}`, onclick: doing(approve, approved)}),
    button("Refuse", {kind: "danger", "aria-label": `Refuse ${name}`, onclick: doing(refuse, refused)}));
}

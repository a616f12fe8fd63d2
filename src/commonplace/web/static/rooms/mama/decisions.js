// Decisions: by topic and outcome, what they build on, checkpoints, and saving a new one.

import {get, post} from "../../api.js";
import {count, el, moment, quoted, shown} from "../../dom.js";
import {picture} from "../../picture.js";
import {button, card, dialog, empty, field, form, page, select, toast} from "../../ui.js";
import {chip, facts} from "./common.js";

const OUTCOMES = [["", "Any outcome"], ["open", "Without outcome"], ["SUCCESS", "Success"], ["FAILED", "Failed"], ["PARTIAL", "Partial"]];
const MOST = 200; // in the list; a topic or a search narrows it

export async function render(context) {
  const {query, signal, go, refresh} = context;
  const topic = query.get("topic") ?? "", outcome = query.get("outcome") ?? "", words = query.get("q") ?? "";
  const [graph, found, {checkpoints}] = await Promise.all([
    get("/graph", {topic}, {signal}), words ? get("/api/mama/search", {q: words, limit: 20}, {signal}) : null, get("/checkpoints", {}, {signal}),
  ]);
  const nodes = found ? found.results.filter((one) => !topic || one.topic === topic) : graph.nodes;
  const kept = nodes.filter((one) => !outcome || (outcome === "open" ? !one.outcome : one.outcome === outcome));
  const open = (id) => {
    const one = graph.nodes.find((each) => each.id === id) ?? nodes.find((each) => each.id === id);
    if (one) show(one, graph, open, refresh);
  };
  return page("Decisions", {
    lede: `${count(graph.meta.total_nodes, "decision and other memory", "decisions and other memories")} on ${count(graph.meta.topics.length, "topic")}.`,
    actions: [
      el("a", {class: "button", href: "/api/memory/export?format=json", download: "decisions.json"}, "Export JSON"),
      el("a", {class: "button", href: "/api/memory/export?format=csv", download: "decisions.csv"}, "Export CSV"),
      button("Save a decision", {icon: "plus", kind: "main", onclick: () => save(refresh)}),
    ],
  },
  filters({topic, outcome, words}, graph.meta.topics, go),
  kept.length > 1 && picture(placed(kept, graph.edges, open), context, "Decisions by topic, and their relations; the list below has the same."),
  kept.length ? el("ul", {class: "cards"}, kept.slice(0, MOST).map((one) => item(one, graph, open)))
    : empty("Nothing here", words || topic || outcome ? "No decision fits what you chose." : "Decisions that agents save appear here."),
  kept.length > MOST && el("p", {class: "hint"}, `The newest ${MOST} of ${kept.length} are shown. Choose a topic, or search.`),
  checkpoints.length > 0 && card("Checkpoints", el("ul", {class: "entries"}, checkpoints.slice(0, 5).map((one) =>
    el("li", {}, el("div", {class: "grow", dir: "auto"}, shown(one.summary)), moment(new Date(one.timestamp).toISOString()))))));
}

/** Every topic is a ring of its decisions; the rings lie in a spiral, the largest in the middle. */
function placed(nodes, edges, open) {
  const topics = new Map();
  for (const one of nodes) topics.set(one.topic, [...(topics.get(one.topic) ?? []), one]);
  const discs = new Map();
  let area = 0, before = 0;
  for (const [topic, some] of [...topics].sort((a, b) => b[1].length - a[1].length)) {
    const reach = some.length > 1 ? Math.max(1, some.length / 4.5) : 0, room = reach + 1.1;
    const far = area && 1.1 * Math.sqrt(area) + room, turn = 2.4 * before;
    some.forEach((one, index) => discs.set(one.id, {
      ...one, label: index ? "" : topic, title: `${topic}: ${one.decision}`, colour: topic, border: one.outcome, r: 0.55,
      x: far * Math.cos(turn) + reach * Math.sin((2 * Math.PI * index) / some.length),
      y: far * Math.sin(turn) + reach * Math.cos((2 * Math.PI * index) / some.length),
    }));
    area += room * room;
    before += 1;
  }
  const lines = edges.filter((each) => discs.has(each.from) && discs.has(each.to))
    .map((each) => ({from: discs.get(each.from), to: discs.get(each.to), kind: each.relationship}));
  return {discs: [...discs.values()], lines, largest: 18, open: (one) => open(one.id)};
}

function filters({topic, outcome, words}, topics, go) {
  const search = el("input", {type: "search", value: words, placeholder: "Search decisions", "aria-label": "Search decisions", autocomplete: "off"});
  const named = topic && !topics.includes(topic) ? [topic, ...topics] : topics;
  const byTopic = select([["", "All topics"], ...named.map((each) => [each, each])], topic, {"aria-label": "Topic", onchange: () => ask()});
  const byOutcome = select(OUTCOMES, outcome, {"aria-label": "Outcome", onchange: () => ask()});
  const ask = () => {
    const asked = new URLSearchParams(Object.entries({q: search.value.trim(), topic: byTopic.value, outcome: byOutcome.value}).filter(([, value]) => value));
    go(`/viewer/decisions${asked.size ? `?${asked}` : ""}`, {replace: true});
  };
  return el("form", {class: "narrowing three", role: "search", onsubmit: (event) => { event.preventDefault(); ask(); }}, search, byTopic, byOutcome);
}

function item(one, graph, open) {
  const edges = graph.edges.filter((each) => each.from === one.id || each.to === one.id);
  return el("li", {class: "card row"}, el("div", {class: "grow stack"},
    el("div", {class: "chips"}, el("span", {class: "chip kind"}, quoted(one.topic)), outcomeChip(one.outcome), one.kind && chip(one.kind),
      edges.length > 0 && chip(count(edges.length, "relation"))),
    el("p", {dir: "auto"}, shown(one.decision)), one.created_at && el("p", {class: "hint"}, moment(new Date(one.created_at).toISOString()))),
  button("Open", {"aria-label": `Open the decision on ${one.topic}`, onclick: () => open(one.id)}));
}

function outcomeChip(outcome) {
  return outcome && chip(outcome.toLowerCase(), outcome === "FAILED" ? "warn" : "");
}

async function show(one, graph, open, refresh) {
  const edges = graph.edges.filter((each) => each.from === one.id || each.to === one.id);
  let alike = [];
  try {
    alike = (await get("/graph/similar", {id: one.id})).similar;
  } catch { /* without a model nothing is alike */ }
  const others = [
    ...edges.map((each) => [each.from === one.id ? each.relationship : `${each.relationship} (by the other)`, each.from === one.id ? each.to : each.from]),
    ...alike.filter((each) => !edges.some((edge) => each.id === edge.from || each.id === edge.to)).map((each) => [`alike, ${Math.round(each.similarity * 100)} %`, each.id]),
  ];
  const topicOf = new Map([...graph.nodes, ...alike].map((each) => [each.id, each]));
  const next = await dialog(one.topic, (close) => [
    el("p", {dir: "auto"}, shown(one.decision)),
    facts([["Reasoning", one.reasoning], ["Outcome", one.outcome?.toLowerCase()], ["Confidence", one.confidence === undefined ? "" : String(one.confidence)],
      ["Saved", one.created_at && moment(new Date(one.created_at).toISOString(), {exact: true})], ["Id", one.id]]),
    others.length > 0 && el("div", {class: "explained"}, el("h3", {}, "Related"), el("ul", {class: "entries"}, others.map(([how, id]) => el("li", {},
      el("div", {class: "grow", dir: "auto"}, shown(topicOf.get(id)?.decision ?? id)), chip(how),
      topicOf.has(id) && button("Open", {"aria-label": `Open the related decision, ${how}`, onclick: () => close({id})}))))),
    !one.kind && form({action: "Save the outcome", submit: async ({outcome, reason}) => {
      await post("/graph/update", {id: one.id, outcome, reason: reason || undefined});
      close({saved: true});
    }},
    field("Outcome", select([["success", "Success"], ["failed", "Failed"], ["partial", "Partial"]], one.outcome?.toLowerCase() ?? "success", {name: "outcome"})),
    field("Why", el("input", {name: "reason", maxlength: "2000", dir: "auto"}))),
  ].filter(Boolean), {wide: true});
  if (next?.saved) { await refresh(); toast("Saved."); }
  if (next?.id) open(next.id);
}

async function save(refresh) {
  const saved = await dialog("Save a decision", (close) => form({
    cancel: () => close(),
    submit: async ({topic, decision, reasoning, confidence}) => {
      await post("/api/mama/save", {topic: topic.trim(), decision, reasoning, confidence: Number(confidence)});
      close(true);
    },
  },
  field("Topic", el("input", {name: "topic", required: true, maxlength: "200", autocapitalize: "none"}), "A decision on a topic that has one supersedes it."),
  field("Decision", el("textarea", {name: "decision", required: true, rows: "3", dir: "auto"})),
  field("Reasoning", el("textarea", {name: "reasoning", required: true, rows: "3", dir: "auto"}), "builds_on: ID, debates: ID or synthesizes: [ID, ID] relate it to others."),
  field("Confidence", el("input", {name: "confidence", type: "number", min: "0", max: "1", step: "0.05", value: "0.8", required: true}))));
  if (saved) { await refresh(); toast("Saved."); }
}

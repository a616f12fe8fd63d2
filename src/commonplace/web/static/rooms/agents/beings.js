// Beings: soul, rules, notes, clusters and diary of each, and talking to one.

import {post} from "../../api.js";
import {count, el, moment, quoted, shown} from "../../dom.js";
import {button, card, dialog, field, form} from "../../ui.js";
import {conversation, folded, optional, part} from "./common.js";

export function beingsCard(beings, context) {
  return card("Beings",
    beings.length ? el("ul", {class: "rows folds"}, beings.map((one) => el("li", {}, row(one, context))))
      : el("p", {class: "muted"}, "None yet. A being is a companion with a soul, rules and a diary of its own."),
    context.may("write") && el("div", {class: "actions"}, button("New being", {icon: "plus", onclick: () => create(context)})));
}

async function create({refresh}) {
  await dialog("New being", (close) => form({
    action: "Create", cancel: () => close(),
    submit: async ({name}) => { await post("/v1/beings", {name}); close(); await refresh(); },
  }, field("Name", el("input", {name: "name", required: true, dir: "auto", autocomplete: "off"}))));
}

function row(one, {may, signal}) {
  const name = one.name ?? one.id;
  return folded([el("strong", {}, quoted(name)), " ", el("span", {class: "muted"}, "since ", moment(one.created_at, {exact: true}))], async () => {
    const root = `/v1/beings/${encodeURIComponent(one.id)}`;
    const [soul, rules, notes, clusters, diary, people, preferences] = await Promise.all(
      ["soul", "rules", "notes", "clusters", "diary", "relationships", "preferences"].map((path) => optional(`${root}/${path}`, signal)));
    return [
      may("admin") && part("Talk", conversation(name, async (message) => (await post(`${root}/talk`, {message})).reply), ""),
      part("Soul", soulOf(soul), "It has no soul yet."),
      part("Rules", listed(rules, (rule) => [el("strong", {}, quoted(rule.title)), el("p", {dir: "auto"}, shown(rule.content ?? ""))]), "It has no rules."),
      part("Notes", listed(notes, (note) => el("p", {dir: "auto"}, shown(note.content ?? note.text ?? ""))), "It has no notes."),
      part("Clusters", listed(clusters, (each) => [el("strong", {}, quoted(each.name)), " ", el("span", {class: "muted"}, count(each.nodes, "memory", "memories")),
        each.digest && el("p", {dir: "auto"}, shown(each.digest))]), "Its memories are not grouped yet: a patrol does it."),
      part("Diary", listed(diary, (day) => [el("strong", {}, quoted(day.date)), el("p", {dir: "auto"}, shown(day.text))]), "Its diary is empty."),
      part("People", listed(people, (each) => [el("strong", {}, quoted(each.person_name)), el("p", {dir: "auto"}, shown(each.description))]), "It knows nobody yet."),
      part("Preferences", listed(preferences, (each) => [el("strong", {}, quoted(each.key ?? each.title ?? "")), el("p", {dir: "auto"}, shown(each.value ?? each.content ?? ""))]), "It has none."),
    ];
  });
}

function soulOf(soul) {
  const held = Object.entries(soul ?? {}).filter(([name, value]) => value && !["being_id", "updated_at"].includes(name));
  return held.length > 0 && el("dl", {class: "facts"}, held.map(([name, value]) => [el("dt", {}, name.replaceAll("_", " ")), el("dd", {dir: "auto"}, shown(value))]));
}

function listed(some, show) {
  return some?.length > 0 && el("ul", {class: "plain-list"}, some.map((one) => el("li", {}, show(one))));
}

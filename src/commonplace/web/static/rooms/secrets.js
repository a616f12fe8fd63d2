// Secrets: keys, tokens and passwords that are stored, and deleting them for good.

import {get, post} from "../api.js";
import {count, el, number, quoted, shown} from "../dom.js";
import {addressOf} from "../memory-parts.js";
import {button, confirmed, empty, page, toast} from "../ui.js";

const ROOT = "/api/console/secrets";
const MOST = 200; // memories in one purge
const WHERE = {memory: "Memory", artifact: "Document", fact: "Fact"};

export async function render({signal, refresh}) {
  const found = await get(ROOT, {}, {signal});
  const note = "New secrets are masked before they are stored.";
  if (!found.total) {
    return page("Secrets", {lede: note}, empty("No secrets found", "All memories, facts and documents were searched, and every former version of them."));
  }
  const groups = new Map();
  for (const one of found.secrets) groups.set(`${one.what} ${one.id}`, [...(groups.get(`${one.what} ${one.id}`) ?? []), one]);
  const chosen = new Set();
  const bar = el("div", {class: "selection", role: "region", "aria-label": "Selected memories", hidden: true});
  const act = (ids) => purge(ids, refresh);
  const choose = (id, on) => {
    if (on) chosen.add(id); else chosen.delete(id);
    bar.hidden = chosen.size === 0;
    bar.replaceChildren(el("strong", {}, `${number(chosen.size)} selected`),
      button("Delete for good", {icon: "trash", kind: "danger", onclick: () => act([...chosen])}));
  };
  const held = [...new Set(found.secrets.filter((one) => one.what === "memory").map((one) => one.id))].slice(0, MOST);
  return page("Secrets", {
    lede: `${count(found.total, "secret")} in what is stored. ${note}`,
    actions: held.length ? [button(`Delete ${held.length === found.memories ? "all" : `the first ${number(held.length)}`} for good`, {icon: "trash", kind: "danger", onclick: () => act(held)})] : [],
  },
  bar,
  el("ul", {class: "memories"}, [...groups.values()].map((some) => item(some, choose))),
  found.total > found.secrets.length && el("p", {class: "muted"}, `The first ${number(found.secrets.length)} are shown.`));
}

function item(some, choose) {
  const [{what, id}] = some;
  const isMemory = what === "memory";
  return el("li", {class: "memory", "data-id": id},
    isMemory && el("label", {class: "choose"}, el("input", {type: "checkbox", "aria-label": `Select memory ${id}`, onchange: (event) => choose(id, event.target.checked)})),
    el("div", {class: "body"},
      some.flatMap((one) => [
        el("ul", {class: "chips"},
          el("li", {}, el("span", {class: "chip warn"}, quoted(one.kind))),
          one.former && el("li", {}, el("span", {class: "chip"}, "A former version"))),
        el("p", {class: "excerpt", dir: "auto"}, shown(one.excerpt))]),
      isMemory ? el("a", {href: addressOf(id)}, "Open the memory")
        : el("p", {class: "muted"}, `${WHERE[what] ?? what} `, quoted(id), ". Delete it where it was made.")));
}

async function purge(ids, refresh) {
  const these = count(ids.length, "memory", "memories");
  const sure = await confirmed(`Delete ${these} for good?`, [
    "The text with its secrets, every former version, and what the audit log holds of it are deleted. Nothing brings them back.",
    "A copy with the secrets masked is kept. It has a new id, no links, and no place in a conversation.",
  ], {action: "Delete for good", word: "purge"});
  if (!sure) return;
  const working = toast("Deleting, and looking through the files for traces…");
  try {
    const proof = await post(`${ROOT}/purge`, {ids, confirm: "purge"});
    working.remove();
    const told = proof.traces === 0 ? " No trace is left in the files." : proof.traces ? ` ${count(proof.traces, "trace is", "traces are")} left in the files.` : "";
    const copies = proof.files ? ` ${count(proof.files, "copy", "copies")} beside the data may still hold them: run “commonplace scan”.` : "";
    const held = proof.held ? ` ${count(proof.held, "other place", "other places")} may still hold pieces: the server's log names them.` : "";
    toast(`${these} deleted, masked copies kept.${told}${copies}${held}`, {error: Boolean(proof.traces)});
    await refresh();
  } catch (error) {
    working.remove();
    toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
  }
}

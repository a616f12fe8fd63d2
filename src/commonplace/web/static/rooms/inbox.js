// Inbox: what was proposed from conversations, and a person's decisions, each of which can be undone.

import {get, patch, post} from "../api.js";
import {count, el, moment, number, quoted, shown} from "../dom.js";
import {addressOf, undoable} from "../memory-parts.js";
import {button, empty, field, form, page, pager} from "../ui.js";

const LIMIT = 30;
const ROOT = "/api/console/proposals";
const PROJECT = "project:";
const these = (ids) => count(ids.length, "proposal");

export async function render({query, signal, may, refresh, go}) {
  const offset = Number(query.get("offset")) || 0;
  const found = await get(ROOT, {offset, limit: LIMIT}, {signal});
  if (!found.proposals.length && offset) return render({query: new URLSearchParams(), signal, may, refresh, go});
  if (!found.total) {
    return page("Inbox", {}, empty("Nothing waits for you", "What you say in sessions of agents (“we decided…”, “from now on…”) is proposed here, and remembered when you accept it.",
      el("a", {class: "button", href: "/viewer/memories"}, "Memories")));
  }
  const list = new Inbox(found, {may, refresh});
  return page("Inbox", {lede: `${count(found.total, "proposal waits", "proposals wait")}. You said these; nothing is remembered until you accept it.`},
    list.bar, list.element,
    pager({offset, limit: LIMIT, total: found.total, go: (at) => go(at ? `/viewer/inbox?offset=${at}` : "/viewer/inbox")}));
}

class Inbox {
  constructor({proposals}, {may, refresh}) {
    Object.assign(this, {proposals, may, refresh, chosen: new Set()});
    this.bar = el("div", {class: "selection", role: "region", "aria-label": "Selected proposals", hidden: true});
    this.element = el("ul", {class: "memories inbox"}, proposals.map((one, index) => this.item(one, index)));
  }

  item(one, index) {
    const name = one.text.length > 60 ? `${one.text.slice(0, 60)}…` : one.text;
    const body = el("div", {class: "body"});
    body.append(...this.parts(one, index, body));
    return el("li", {class: "memory", "data-id": one.id},
      this.may("write") && el("label", {class: "choose"}, el("input", {type: "checkbox", "aria-label": `Select “${name}”`, onchange: (event) => {
        if (event.target.checked) this.chosen.add(one.id); else this.chosen.delete(one.id);
        this.selection();
      }})),
      body);
  }

  parts(one, index, body) {
    const project = one.tags.find((tag) => tag.startsWith(PROJECT))?.slice(PROJECT.length);
    const again = () => this.after(index);
    return [
      el("p", {class: "text", dir: "auto"}, shown(one.text)),
      one.line && one.line !== one.text && el("blockquote", {class: "said", dir: "auto"}, shown(one.line)),
      el("div", {class: "under"},
        el("ul", {class: "chips"},
          el("li", {}, el("span", {class: "chip kind"}, quoted(one.kind))),
          project && el("li", {}, el("a", {class: "chip", href: `/viewer/memories?project=${encodeURIComponent(project)}`, title: project}, quoted(project))),
          one.source && el("li", {}, el("a", {class: "chip", href: addressOf(one.source)}, "Where it was said"))),
        el("p", {class: "provenance"}, moment(one.at))),
      this.may("write") && el("div", {class: "actions"},
        button("Accept", {kind: "main small", onclick: () => accept([one.id], again)}),
        button("Edit", {kind: "small", icon: "edit", onclick: () => this.edit(one, index, body)}),
        button("Reject", {kind: "quiet small", onclick: () => reject([one.id], again)})),
    ].filter(Boolean);
  }

  /** Change the words: keep them for later, or accept them at once. */
  edit(one, index, body) {
    const close = () => { body.replaceChildren(...this.parts(one, index, body)); body.querySelector("button")?.focus(); };
    const words = el("textarea", {name: "text", required: true, dir: "auto", rows: "3", value: one.text});
    const made = form({
      action: "Accept these words", cancel: close,
      submit: async ({text}) => {
        const done = await post(`${ROOT}/accept`, {ids: [one.id], text});
        await undoable(async () => done, "Remembered in your words.", () => this.after(index));
      },
    }, field("What to remember", words));
    made.querySelector(".actions").append(button("Keep for later", {kind: "quiet", onclick: () => undoable(
      () => patch(`${ROOT}/${encodeURIComponent(one.id)}`, {text: words.value, version: one.version}), "The proposal has your words.", () => this.after(index))}));
    body.replaceChildren(made);
    words.focus();
  }

  selection() {
    const ids = [...this.chosen];
    this.bar.hidden = ids.length === 0;
    const again = () => this.after(0);
    this.bar.replaceChildren(
      el("strong", {}, `${number(ids.length)} selected`),
      button("Accept", {kind: "main", onclick: () => accept(ids, again)}),
      button("Reject", {onclick: () => reject(ids, again)}),
      button("Clear", {kind: "quiet", onclick: () => {
        this.chosen.clear();
        for (const box of this.element.querySelectorAll(".choose input")) box.checked = false;
        this.selection();
      }}));
  }

  /** Show what is left, and go on where the person was. */
  async after(index) {
    await this.refresh();
    const left = document.querySelectorAll(".inbox > li");
    const next = left[Math.min(index, left.length - 1)]?.querySelector(".actions button") ?? document.querySelector("h1");
    next?.focus({preventScroll: true});
  }
}

const accept = (ids, refresh) => undoable(() => post(`${ROOT}/accept`, {ids}), `${these(ids)} accepted.`, refresh);
const reject = (ids, refresh) => undoable(() => post(`${ROOT}/reject`, {ids}), `${these(ids)} rejected.`, refresh);

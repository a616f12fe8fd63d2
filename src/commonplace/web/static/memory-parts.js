// Parts that several rooms show of memories: a row of a list, its labels, why it was found, and
// the changes that a person makes to one or to several.

import {get, post} from "./api.js";
import {client, count, el, icon, moment, quoted, shown, styled} from "./dom.js";
import {button, confirmed, dialog, field, form, toast} from "./ui.js";

export const STATES = {active: "Live", dying: "Fading", archived: "Hidden", superseded: "Superseded", dead: "Dead"};
export const TRUSTS = {stated: "Stated by a person", inferred: "Inferred by an agent", external: "From outside"};

/** The address of a memory, now or as of a moment. */
export function addressOf(id, asOf) {
  const path = `/viewer/memories/${encodeURIComponent(id)}`;
  return asOf ? `${path}?as_of=${encodeURIComponent(asOf)}` : path;
}

/** An excerpt: every second piece is a word that was searched for. */
export function excerpt(one) {
  return one.excerpt.flatMap((piece, index) => (index % 2 ? el("mark", {}, shown(piece)) : shown(unmarked(piece))));
}

/** A text without the most frequent marks of Markdown, since an excerpt is not rendered. */
function unmarked(text) {
  return text.replace(/(^|\s)#{1,6}\s+/g, "$1").replace(/\*\*|`+/g, "").replace(/(^|\s)\*(\S[^*\n]*?)\*(?!\w)/g, "$1$2").replace(/\|?(?:\s*:?-{3,}:?\s*\|)+/g, "|").replace(/\s*\|[\s|]*/g, " · ");
}

/** The name of a tag; of a long id in it only the beginning. */
function tagName(tag) {
  return tag.replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}/, (id) => `${id.slice(0, 8)}…`);
}

/** A short name of a memory, for labels that screen readers say. */
export function nameOf(one) {
  const text = one.title || (one.excerpt ? one.excerpt.join("") : one.text) || one.id;
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** Kind, state, trust and tags. */
export function labels(one, {links = true} = {}) {
  const tagged = (tag) => (links
    ? el("a", {class: "chip", href: `/viewer/memories?tag=${encodeURIComponent(tag)}`, title: tag}, "#", quoted(tagName(tag)))
    : el("span", {class: "chip", title: tag}, "#", quoted(tagName(tag))));
  return el("ul", {class: "chips"}, [
    el("span", {class: "chip kind"}, quoted(one.kind)),
    one.pinned && el("span", {class: "chip"}, icon("pin"), "Pinned"),
    one.state !== "active" && el("span", {class: "chip warn"}, STATES[one.state] ?? one.state),
    one.trust !== "stated" && el("span", {class: one.trust === "external" ? "chip warn" : "chip"}, TRUSTS[one.trust] ?? one.trust),
    ...one.tags.slice(0, 8).map(tagged),
    one.tags.length > 8 && el("span", {class: "chip"}, `+${one.tags.length - 8}`),
  ].filter(Boolean).map((chip) => el("li", {}, chip)));
}

/** Who stored it, and when. */
export function provenance(one) {
  const by = client(one.origin.client) || one.origin.user;
  return el("p", {class: "provenance"}, moment(one.occurred_at ?? one.created_at), by && [" · ", quoted(by)]);
}

const PARTS = [["lexical", "words"], ["similarity", "meaning"], ["context", "conversation"], ["graph", "links"]];

/** Why a memory was found: a picture of its parts, and the same as text. */
export function reasons(why) {
  return el("div", {class: "why"},
    el("span", {class: "bars", "aria-hidden": "true"}, PARTS.map(([name], index) =>
      styled(el("span", {class: `part-${index + 1}`}), {"--size": String(Math.max(0, Math.min(1, why[name] || 0)))}))),
    el("span", {class: "told"}, shown(why.text)));
}

/** The legend of the pictures. */
export function legend() {
  return el("p", {class: "legend", "aria-hidden": "true"}, PARTS.map(([, title], index) =>
    el("span", {}, el("i", {class: `part-${index + 1}`}), title)));
}

/** A row of a list, as an item; `choose` adds a box to select it. */
export function item(one, {asOf, choose, chosen = false} = {}) {
  const href = addressOf(one.id, asOf);
  return el("li", {class: "memory", "data-id": one.id},
    choose && el("label", {class: "choose"},
      el("input", {type: "checkbox", checked: chosen, "aria-label": `Select “${nameOf(one)}”`, onchange: (event) => choose(one, event.target.checked)})),
    el("div", {class: "body"},
      el("a", {class: "open", href, dir: "auto"}, one.title ? shown(one.title) : excerpt(one)),
      one.title && el("p", {class: "excerpt", dir: "auto"}, excerpt(one)),
      el("div", {class: "under"}, labels(one), provenance(one)),
      one.why && reasons(one.why)));
}

/** Do something that can be undone, say so, and offer to undo it. */
export async function undoable(run, told, refresh) {
  try {
    const {operation} = await run();
    await refresh();
    toast(told, {undo: operation ? async () => {
      await post(`/api/console/operations/${operation}/undo`);
      await refresh();
    } : undefined});
  } catch (error) {
    toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
  }
}

const ROOT = "/api/console/memories";
const these = (ids) => count(ids.length, "memory", "memories");

export const hide = (ids, refresh) => undoable(() => post(`${ROOT}/hide`, {ids}), `${these(ids)} hidden.`, refresh);
export const restore = (ids, refresh) => undoable(() => post(`${ROOT}/restore`, {ids}), `${these(ids)} restored.`, refresh);
export const pin = (ids, pinned, refresh) => undoable(() => post(`${ROOT}/pin`, {ids, pinned}), `${these(ids)} ${pinned ? "pinned" : "unpinned"}.`, refresh);

/** Ask which tags to add and to remove. */
export async function tag(ids, refresh, current = []) {
  const split = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
  const known = await get("/api/console/choices").catch(() => ({tags: []}));
  await dialog(`Tag ${these(ids)}`, (close) => form({
    action: "Tag", cancel: () => close(),
    submit: async ({add, remove}) => {
      const told = await post(`${ROOT}/tags`, {ids, add: split(add), remove: split(remove)});
      close();
      await undoable(async () => told, `${these(ids)} tagged.`, refresh);
    },
  },
  field("Add", el("input", {name: "add", list: "known-tags", autocomplete: "off"}), "Separate several with commas."),
  field("Remove", el("input", {name: "remove", autocomplete: "off"}), current.length ? `Now: ${current.join(", ")}` : ""),
  el("datalist", {id: "known-tags"}, known.tags.slice(0, 100).map((one) => el("option", {value: one.tag})))));
}

/** Delete memories permanently, after the person has typed a word. Resolves to whether it was done. */
export async function purge(ids) {
  const sure = await confirmed(`Delete ${these(ids)} for good?`, [
    "The text, every former version, and what the audit log holds of it are deleted. Nothing brings them back: no undo, no time travel.",
    "To take it out of sight only, hide it instead.",
  ], {action: "Delete for good", word: "purge"});
  if (!sure) return false;
  const working = toast("Deleting, and looking through the files for traces…");
  try {
    const proof = await post(`${ROOT}/purge`, {ids, confirm: "purge"});
    working.remove();
    const files = proof.traces === null ? "" : " No trace is left in the space's files.";
    const held = proof.held ? ` ${count(proof.held, "other place", "other places")} may still hold a piece of it: the server's log names them.` : "";
    const sources = proof.sources.length ? ` The files of ${proof.sources.join(", ")}, where it came from, still have it.` : "";
    toast(`${these(ids)} deleted.${files}${held}${sources}`);
    return true;
  } catch (error) {
    working.remove();
    toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
    return false;
  }
}

/** A notice that a page shows the past, with the way back. */
export function pastNotice(asOf, now) {
  if (!asOf) return null;
  return el("div", {class: "notice", role: "note"}, icon("clock"),
    el("p", {}, "This is the memory as it was ", moment(asOf, {exact: true}), "."),
    el("a", {class: "button", href: now}, "Back to now"),
    el("a", {class: "button quiet", href: `/viewer/time?at=${encodeURIComponent(asOf)}`}, "Time"));
}

/** Ask for a text to remember. */
export async function remember(go) {
  await dialog("New memory", (close) => form({
    action: "Remember", cancel: () => close(),
    submit: async ({text, title, kind, tags}) => {
      const told = await post(ROOT, {
        text, ...(title && {title}), ...(kind && {kind}),
        ...(tags && {tags: tags.split(",").map((each) => each.trim()).filter(Boolean)}),
      });
      close();
      toast("Remembered.");
      await go(addressOf(told.ids[0]));
    },
  },
  field("Text", el("textarea", {name: "text", required: true, dir: "auto"}), "One fact, decision or event that makes sense on its own. Markdown is shown."),
  field("Title", el("input", {name: "title", dir: "auto"})),
  el("div", {class: "pair"},
    field("Kind", el("input", {name: "kind", placeholder: "note", autocomplete: "off"})),
    field("Tags", el("input", {name: "tags", autocomplete: "off"}), "Separated by commas."))), {wide: true});
}

/** A button that opens the dialog for a new memory. */
export function rememberButton(go) {
  return button("New memory", {icon: "plus", kind: "main", onclick: () => remember(go)});
}

// What the parts of the page Agents share.

import {ApiError, get} from "../../api.js";
import {el, shown} from "../../dom.js";
import {form, toast} from "../../ui.js";

/** The answer to a GET; null if the credential may not use the path, or if there is nothing at it. */
export async function optional(path, signal, parameters = {}) {
  try {
    return await get(path, parameters, {signal});
  } catch (error) {
    if (error instanceof ApiError && [401, 403, 404].includes(error.status)) return null;
    throw error;
  }
}

/** A part that is filled when it is opened for the first time. */
export function folded(summary, fill) {
  const body = el("div", {class: "column"});
  const made = el("details", {ontoggle: async () => {
    if (!made.open || body.childElementCount) return;
    body.replaceChildren(el("p", {class: "muted"}, "Reading…"));
    try {
      body.replaceChildren(...[await fill()].flat().filter(Boolean));
    } catch (error) {
      body.replaceChildren(el("p", {class: "problem"}, shown(error.message)));
    }
  }}, el("summary", {}, summary), body);
  return made;
}

/** A section with a small heading; without content it shows the text `none`. */
export function part(title, nodes, none) {
  const some = [nodes].flat().filter(Boolean);
  return el("section", {class: "part"}, el("h3", {}, title), some.length ? some : el("p", {class: "muted"}, none));
}

/** Tell what went wrong, and what to do. */
export function tell(error) {
  toast([error.message, error.hint].filter(Boolean).join(" "), {error: true});
}

/** A small conversation: `send` gets a message and gives the reply. */
export function conversation(name, send) {
  const lines = el("ol", {class: "lines", role: "log", "aria-label": `Conversation with ${name}`});
  const text = el("textarea", {name: "message", required: true, dir: "auto", rows: "2", maxlength: "20000", "aria-label": `Message to ${name}`});
  const line = (who, said, kind) => el("li", {class: kind}, el("strong", {}, who), el("p", {dir: "auto"}, shown(said)));
  const made = form({
    action: "Send",
    submit: async ({message}) => {
      const waiting = el("li", {class: "muted"}, "Thinking…");
      lines.append(line("You", message, "mine"), waiting);
      try {
        const reply = await send(message);
        waiting.replaceWith(line(name, reply, "theirs"));
        text.value = "";
      } catch (error) {
        waiting.remove();
        throw error;
      }
    },
  }, text);
  return el("div", {class: "talk"}, lines, made);
}

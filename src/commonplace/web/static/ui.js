// Components that the rooms share. All return elements; texts of others go through `shown`.

import {Unreachable} from "./api.js";
import {el, icon, shown} from "./dom.js";

/** A page: its heading, what it is for, buttons, and the content. */
export function page(title, {lede, actions = [], back} = {}, ...content) {
  return el("article", {class: "page"},
    back && el("a", {class: "back", href: back.href}, back.title),
    el("div", {class: "head"},
      el("div", {class: "words"},
        el("h1", {tabindex: "-1"}, title),
        lede && el("p", {class: "lede"}, lede)),
      actions.length > 0 && el("div", {class: "actions"}, actions)),
    content);
}

/** A section with a heading. */
export function card(title, ...content) {
  const heading = title && el("h2", {}, title);
  return el("section", {class: "card"}, heading, content);
}

/** A button; `kind` is main, danger, quiet or nothing. */
export function button(label, {icon: picture, kind = "", ...attributes} = {}) {
  return el("button", {type: "button", class: kind, ...attributes}, picture && icon(picture), label && el("span", {}, label));
}

/** A button with an icon alone; the label is for screen readers and as its title. */
export function iconButton(label, picture, attributes = {}) {
  return el("button", {type: "button", class: "icon-only", "aria-label": label, title: label, ...attributes}, icon(picture));
}

/** A link that looks like a button. */
export function linkButton(label, href, {icon: picture, kind = ""} = {}) {
  return el("a", {class: `button ${kind}`, href}, picture && icon(picture), el("span", {}, label));
}

let numbered = 0;

/** A labelled control with an optional hint. */
export function field(label, control, hint = "") {
  const id = control.id || `field-${(numbered += 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el("div", {class: "field"},
    el("label", {for: id}, label), control,
    hint && el("p", {class: "hint", id: `${id}-hint`}, hint));
}

/** A select of [value, label] pairs. */
export function select(pairs, value, attributes = {}) {
  const made = el("select", attributes, pairs.map(([key, label]) => el("option", {value: key}, label)));
  made.value = value;
  return made;
}

/** A form; `submit` gets its values by name. While it runs the form is locked; an error is shown. */
export function form({submit, action = "Save", kind = "main", cancel}, ...fields) {
  const failed = el("div", {class: "problem", role: "alert"});
  const send = el("button", {type: "submit", class: kind}, action);
  const made = el("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      failed.replaceChildren();
      const values = Object.fromEntries(new FormData(made));
      try {
        await busy(send, () => submit(values, made));
      } catch (error) {
        failed.replaceChildren(...told(error));
      }
    },
  }, fields, failed, el("div", {class: "actions"}, send, cancel && button("Cancel", {onclick: cancel})));
  return made;
}

/** Run something while a button is locked and shows that it works. */
export async function busy(control, run) {
  control.disabled = true;
  control.setAttribute("aria-busy", "true");
  try {
    return await run();
  } finally {
    control.disabled = false;
    control.removeAttribute("aria-busy");
  }
}

/** Ask in a dialog. Resolves with what `close(value)` was given, or undefined if it was left. */
export function dialog(title, build, {wide = false} = {}) {
  return new Promise((resolve) => {
    const heading = el("h2", {id: `dialog-${(numbered += 1)}`}, title);
    const made = el("dialog", {"aria-labelledby": heading.id, class: wide ? "wide" : ""});
    // Removed here, since the event "close" comes later: until then a secret would stay in the page.
    const close = (value) => { made.close(); made.remove(); resolve(value); };
    made.addEventListener("cancel", ({target}) => target === made && close()); // not of a file input
    made.addEventListener("close", () => close());
    made.append(
      el("div", {class: "dialog-head"}, heading, iconButton("Close", "close", {onclick: () => close()})),
      ...[build(close)].flat());
    document.body.append(made);
    made.showModal();
    made.querySelector("form :is(input, select, textarea)")?.focus(); // not the button that closes it
  });
}

/** Ask for confirmation; with `word`, the person has to type it. Resolves to true or false. */
export async function confirmed(title, text, {action = "Go on", word, kind = "danger"} = {}) {
  const sure = await dialog(title, (close) => {
    const typed = word && el("input", {name: "word", autocomplete: "off", autocapitalize: "none", spellcheck: "false"});
    const send = el("button", {type: "submit", class: kind, disabled: Boolean(word)}, action);
    if (typed) typed.addEventListener("input", () => { send.disabled = typed.value.trim() !== word; });
    return el("form", {onsubmit: (event) => { event.preventDefault(); if (!send.disabled) close(true); }},
      [text].flat().map((line) => el("p", {}, line)),
      typed && field(`Type “${word}” to confirm`, typed),
      el("div", {class: "actions"}, send, button("Cancel", {onclick: () => close(false)})));
  });
  return sure === true;
}

/** Tell something in passing; `undo` adds a button that takes it back. */
export function toast(text, {undo, error = false} = {}) {
  let region = document.querySelector(".toasts");
  if (region === null) {
    region = el("div", {class: "toasts", role: "status", "aria-live": "polite"});
    document.body.append(region);
  }
  const made = el("div", {class: error ? "toast error" : "toast"}, el("span", {}, shown(text)));
  const gone = () => made.remove();
  if (undo) {
    made.append(button("Undo", {icon: "undo", kind: "quiet", onclick: async (event) => {
      try {
        await busy(event.currentTarget, undo);
        gone();
      } catch (failure) {
        gone();
        toast(failure.message, {error: true});
      }
    }}));
  }
  made.append(iconButton("Dismiss", "close", {onclick: gone}));
  region.append(made);
  let left = setTimeout(gone, undo || error ? 12000 : 6000);
  // It stays while it has the pointer or the keyboard focus.
  for (const held of ["pointerenter", "focusin"]) made.addEventListener(held, () => clearTimeout(left));
  for (const freed of ["pointerleave", "focusout"]) {
    made.addEventListener(freed, () => { clearTimeout(left); left = setTimeout(gone, 4000); });
  }
  return made;
}

/** A notice that a list or page is empty: why, and what to do. */
export function empty(title, text, ...actions) {
  return el("div", {class: "empty"}, el("h2", {}, title), el("p", {}, text),
    actions.length > 0 && el("div", {class: "actions"}, actions));
}

/** What went wrong and what to do about it. */
export function failure(error, retry) {
  const missing = error.status === 404;
  const title = error instanceof Unreachable ? "The server cannot be reached"
    : missing ? "Not found" : error.status === 403 ? "Not allowed" : "Something went wrong";
  return el("div", {class: "empty failed", role: "alert"}, icon("warning"), el("h2", {}, title), told(error),
    el("div", {class: "actions"}, retry && !missing && button("Try again", {onclick: retry}), linkButton("Home", "/viewer")));
}

function told(error) {
  return [error.message, error.hint].filter(Boolean).map((line) => el("p", {}, shown(line)));
}

/** Buttons to the pages before and after; `go` gets the offset. */
export function pager({offset, limit, total, go}) {
  if (total <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, total);
  return el("nav", {class: "pager", "aria-label": "Pages"},
    button("Earlier", {disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit))}),
    el("span", {}, `${Math.min(offset + 1, total)}–${last} of ${total}`),
    button("Later", {disabled: last >= total, onclick: () => go(offset + limit)}));
}

/** Copy a text, and say so. */
export function copyButton(text, label = "Copy") {
  return iconButton(label, "copy", {onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast("The browser does not allow copying here.", {error: true});
    }
  }});
}

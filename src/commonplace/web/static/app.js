// Starts the application: who is here, the navigation, and the room of the address.

import * as api from "./api.js";
import {demoNotice} from "./demo.js";
import {el, icon, quoted} from "./dom.js";
import {ROOMS, addressOf, isOperator, roomAt} from "./rooms.js";
import {signInPage} from "./sign-in.js";
import {button, confirmed, failure, iconButton, page, toast} from "./ui.js";

const PATIENCE = 200; // milliseconds of loading before the progress bar is shown
const main = document.querySelector("main");
const bar = document.querySelector(".bar");
const top = document.querySelector("header.top");

let me = null;
let leaving = new AbortController();
let isUnsaved = () => false;

async function start() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await api.signIn({code});
    } catch (error) {
      if (error instanceof api.ApiError) toast("The code has expired or was used. Run “commonplace open” again.", {error: true});
    }
  }
  await enter();
}

/** Find out who is here, and show the room of the address or the sign-in page. */
async function enter() {
  await loading(async () => {
    try {
      me = await api.whoIsHere();
    } catch (error) {
      top.hidden = true;
      main.replaceChildren(page("Commonplace", {}, failure(error, enter)));
      return;
    }
    if (me === null) {
      top.hidden = true;
      offerChat();
      document.title = "Sign in · Commonplace";
      main.replaceChildren(signInPage(enter));
      main.querySelector("input")?.focus();
      return;
    }
    navigation();
    offerChat();
    await route();
  });
}

// Whether a file of the application could not be fetched: browsers do not ask for it again.
let incomplete = false;

/** Show the room of the address. */
async function route({focus = false} = {}) {
  leaving.abort();
  leaving = new AbortController();
  isUnsaved = () => false;
  const {signal} = leaving;
  const {room, rest} = roomAt(location.pathname);
  marked(room);
  if (room === undefined) {
    document.title = "Not found · Commonplace";
    main.replaceChildren(page("No such page", {}, failure({status: 404, message: "There is no such page."})));
    return;
  }
  const context = {
    me, rest, signal, go,
    query: new URLSearchParams(location.search),
    refresh: () => route(),
    /** Find out again who is here, after signing in as somebody else. */
    enter: async () => { history.pushState(null, "", "/viewer"); await enter(); },
    /** Tell that something typed here would be lost by leaving. */
    unsaved: (asked) => { isUnsaved = asked; },
    may: (scope) => me.scopes.includes(scope),
  };
  await loading(async () => {
    let made;
    try {
      const module = await room.load().catch(() => { incomplete = true; return api.unreachable(); });
      made = await module.render(context);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status === 401) { await enter(); return; }
      if (!(error instanceof api.ApiError) && !(error instanceof api.Unreachable)) console.error(error);
      made = page(room.title, {}, failure(error, () => route()));
    }
    if (signal.aborted) return;
    main.replaceChildren(...[demoNotice(me, enter), made].filter(Boolean));
    const heading = main.querySelector("h1");
    document.title = `${heading?.textContent ?? room.title} · Commonplace`;
    if (focus) {
      heading?.focus({preventScroll: true});
      scrollTo(0, 0);
    }
  });
}

/** Go to an address of the application. */
async function go(address, {replace = false, focus = !replace} = {}) {
  if (isUnsaved() && !(await confirmed("Leave without saving?", "What you typed is not saved.", {action: "Leave"}))) return;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  await route({focus});
}

async function loading(run) {
  const late = setTimeout(() => { bar.hidden = false; main.setAttribute("aria-busy", "true"); }, PATIENCE);
  try {
    await run();
  } finally {
    clearTimeout(late);
    bar.hidden = true;
    main.removeAttribute("aria-busy");
  }
}

// Navigation

function offered() {
  return ROOMS.filter((room) => (!room.needs || me.scopes.includes(room.needs)) && (!room.operator || isOperator(me)));
}

function navigation() {
  const toggle = iconButton("Menu", "menu", {
    class: "icon-only menu", "aria-expanded": "false", "aria-controls": "rooms", onclick: () => menu(!top.classList.contains("open")),
  });
  const groups = Map.groupBy ? Map.groupBy(offered(), (room) => room.group ?? "") : grouped(offered());
  const rooms = el("nav", {id: "rooms", "aria-label": "Rooms"},
    [...groups].map(([name, some]) => el("div", {class: "group"},
      name && el("h2", {}, name),
      el("ul", {}, some.map((room) => el("li", {},
        el("a", {href: addressOf(room), "data-room": room.path}, icon(room.icon), el("span", {}, room.title))))))),
    el("div", {class: "person"},
      icon("person"),
      el("div", {class: "who"}, quoted(me.signed_in ? me.user : "You, at this machine", {class: "name"}),
        el("span", {class: "space"}, "Space ", quoted(me.space))),
      themeButton(),
      me.signed_in && button("Sign out", {kind: "quiet", onclick: leave})));
  top.replaceChildren(el("a", {class: "brand", href: "/viewer"}, mark(), el("span", {}, "Commonplace")), toggle, rooms);
  top.hidden = false;
}

function grouped(rooms) {
  const found = new Map();
  for (const room of rooms) found.set(room.group ?? "", [...(found.get(room.group ?? "") ?? []), room]);
  return found;
}

function mark() {
  return el("img", {src: "/viewer/assets/icons/icon.svg", alt: "", width: "28", height: "28"});
}

function menu(open) {
  top.classList.toggle("open", open);
  top.querySelector(".menu")?.setAttribute("aria-expanded", String(open));
}

function marked(room) {
  menu(false);
  for (const link of top.querySelectorAll("[data-room]")) {
    if (room && link.dataset.room === room.path) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function leave() {
  try {
    await api.signOut();
  } catch (error) {
    if (error.status !== 401) { toast(error.message, {error: true}); return; }
  }
  await enter();
}

/** Show the chat to the operator; remove it for anybody else. */
async function offerChat() {
  const wanted = me !== null && isOperator(me);
  if (!wanted && !document.querySelector(".chat")) return;
  const chat = await import("./chat.js");
  if (wanted) chat.show();
  else chat.hide();
}

// Theme: as the system has it, until somebody chooses

function theme() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function themeButton() {
  const other = () => (theme() === "dark" ? "light" : "dark");
  const made = iconButton(`Use the ${other()} theme`, other() === "dark" ? "moon" : "sun", {
    onclick: () => {
      document.documentElement.dataset.theme = other();
      document.dispatchEvent(new Event("theme")); // a picture is drawn again
      try { localStorage.setItem("theme", theme()); } catch { /* private windows keep nothing */ }
      made.replaceWith(themeButton());
      top.querySelector(".person .icon-only")?.focus();
    },
  });
  return made;
}

try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* nothing is kept */ }

// Links inside the application do not load the page anew

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.target || link.hasAttribute("download") || roomAt(url.pathname).room === undefined) return;
  if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
  event.preventDefault();
  go(url.pathname + url.search + url.hash);
});

addEventListener("popstate", () => route({focus: true}));
addEventListener("beforeunload", (event) => { if (isUnsaved()) event.preventDefault(); });

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && top.classList.contains("open")) { menu(false); top.querySelector(".menu")?.focus(); }
  const typing = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
  if (event.key !== "/" || typing || event.metaKey || event.ctrlKey || event.altKey || me === null) return;
  event.preventDefault();
  const search = main.querySelector("input[type=search]");
  if (search) search.focus();
  else go("/viewer/memories").then(() => main.querySelector("input[type=search]")?.focus());
});

// A server that has gone: say so, look for it, and go on when it is back

let looking = false;

document.addEventListener("unreachable", async () => {
  if (looking) return;
  looking = true;
  const banner = el("div", {class: "banner", role: "status"}, icon("warning"), "The server does not answer. Looking for it…");
  document.body.prepend(banner);
  for (let wait = 1; ; wait = Math.min(wait * 2, 30)) {
    await new Promise((done) => { setTimeout(done, wait * 1000); });
    try {
      if ((await fetch("/health", {cache: "no-store"})).ok) break;
    } catch { /* not yet */ }
  }
  looking = false;
  banner.remove();
  toast("The server is back.");
  if (incomplete) location.reload();
  else if (me === null || main.querySelector(".failed")) await enter();
});

if ("serviceWorker" in navigator) {
  const worker = "/sw.js";
  const policy = window.trustedTypes?.createPolicy("commonplace", {
    createScriptURL: (url) => { if (url !== worker) throw new Error(url); return url; },
  });
  navigator.serviceWorker.register(policy ? policy.createScriptURL(worker) : worker).catch(() => { /* works without */ });
}

start();

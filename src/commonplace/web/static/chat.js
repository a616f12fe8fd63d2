// The chat with MAMA's agents: a panel over every page, the whole screen on a phone.

import * as api from "./api.js";
import {el, icon, moment, shown} from "./dom.js";
import {markdown} from "./markdown.js";
import {busy, button, iconButton} from "./ui.js";

const LONGEST_WAIT = 30; // seconds between two tries to connect
const REFUSED = 4001, TOO_MANY = 4029;
const KEPT = "mama chat"; // the key in sessionStorage of the session's id, which grants no access
const HELP = [
  "/save topic | decision | reasoning: save a decision", "/search words: search decisions",
  "/checkpoint summary: save where you are", "/resume: show the latest checkpoint", "/help: show this",
];

let chat = null;

/** Offer the chat, once. */
export function show() {
  chat ??= new Chat();
}

/** Take the chat away. */
export function hide() {
  chat?.close();
  chat = null;
}

class Chat {
  constructor() {
    this.socket = null;
    this.tries = 0;
    this.files = [];
    this.current = null; // the answer that is being written
    this.aloud = false;
    this.opener = button("Chat", {icon: "chat", kind: "main chat-opener", "aria-expanded": "false", "aria-controls": "chat", onclick: () => this.toggle(true)});
    this.state = el("p", {class: "hint", role: "status"}, "Not connected.");
    this.log = el("div", {class: "chat-log", role: "log", "aria-label": "Conversation", tabindex: "0"});
    this.text = el("textarea", {name: "content", rows: "2", maxlength: "20000", dir: "auto", "aria-label": "Message", placeholder: "Write a message, or /help",
      onkeydown: (event) => {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); this.send(); }
      }});
    this.picker = el("input", {type: "file", multiple: true, class: "visually-hidden", tabindex: "-1", "aria-label": "Files to attach", onchange: () => this.attach()});
    this.attached = el("ul", {class: "chips", "aria-label": "Attached files"});
    this.panel = el("aside", {id: "chat", class: "chat", "aria-label": "Chat", hidden: true, onkeydown: (event) => { if (event.key === "Escape") this.toggle(false); }},
      el("div", {class: "chat-head"}, el("h2", {}, "Chat"), this.state,
        "speechSynthesis" in window && this.aloudButton(),
        iconButton("New conversation", "plus", {onclick: () => this.renew()}),
        iconButton("Close the chat", "close", {onclick: () => this.toggle(false)})),
      this.log,
      el("form", {onsubmit: (event) => { event.preventDefault(); this.send(); }}, this.attached, this.text, this.picker,
        el("div", {class: "actions"},
          button("Attach", {icon: "link", onclick: () => this.picker.click()}), this.dictation(),
          el("button", {type: "submit", class: "main"}, "Send"))));
    document.body.append(this.opener, this.panel);
  }

  close() {
    this.ended = true;
    clearTimeout(this.timer);
    this.socket?.close();
    this.opener.remove();
    this.panel.remove();
  }

  toggle(open) {
    this.panel.hidden = !open;
    this.opener.hidden = open;
    this.opener.setAttribute("aria-expanded", String(open));
    if (!open) { this.opener.focus(); return; }
    if (this.socket === null) this.connect();
    this.text.focus();
  }

  // The connection

  connect() {
    this.state.replaceChildren("Connecting…");
    const address = new URL("/ws", location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = this.socket = new WebSocket(address);
    socket.addEventListener("open", () => {
      this.tries = 0;
      this.tell({type: "attach", sessionId: kept() ?? undefined, osAgentMode: !matchMedia("(max-width: 820px)").matches});
    });
    socket.addEventListener("message", ({data}) => this.heard(JSON.parse(data)));
    socket.addEventListener("close", ({code}) => this.lost(socket, code));
  }

  lost(socket, code) {
    if (this.ended || socket !== this.socket) return;
    this.current = null;
    if (code === REFUSED || code === TOO_MANY) {
      this.socket = null; // `toggle` connects again when the chat is opened next
      this.state.replaceChildren(code === REFUSED ? "Only the operator may chat. Sign in with a token of the scope admin." : "Too many chats are open.");
      return;
    }
    const wait = Math.min(2 ** this.tries, LONGEST_WAIT);
    this.tries += 1;
    this.state.replaceChildren(`Not connected. Next try in ${wait} s.`);
    this.timer = setTimeout(() => this.connect(), wait * 1000);
  }

  tell(message) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  renew() {
    keep(null);
    this.log.replaceChildren();
    this.tell({type: "attach", osAgentMode: !matchMedia("(max-width: 820px)").matches});
    this.text.focus();
  }

  // What the server says

  heard(message) {
    const kinds = {
      attached: () => { keep(message.sessionId); this.state.replaceChildren("Connected."); },
      history: () => {
        this.log.replaceChildren(...message.messages.map((one) => line(one.role, one.content, new Date(one.timestamp).toISOString())));
      },
      typing: () => this.state.replaceChildren(message.elapsed ? `Working, ${Math.round(message.elapsed / 1000)} s…` : "Working…"),
      queued: () => this.note(message.message),
      tool_use: () => this.tool(message),
      tool_complete: () => this.toolDone(message),
      stream: () => this.stream(message.content),
      stream_end: () => this.answered(),
      attachment_failed: () => this.note(`${message.filename}: ${message.error}`, true),
      error: () => { this.note(message.message ?? message.error, true); this.answered(); },
      ping: () => this.tell({type: "pong"}),
    };
    kinds[message.type]?.();
    this.log.scrollTop = this.log.scrollHeight;
  }

  stream(content) {
    if (this.current === null) {
      this.current = line("assistant", "");
      this.streamed = "";
      this.log.append(this.current);
    }
    this.streamed += content;
    this.current.querySelector(".said").replaceChildren(...markdown(this.streamed));
  }

  answered() {
    if (this.aloud && this.current) speechSynthesis.speak(new SpeechSynthesisUtterance(this.current.querySelector(".said").textContent));
    this.current = null;
    this.state.replaceChildren("Connected.");
  }

  tool({tool, index, input}) {
    this.log.append(el("details", {class: "tool", "data-index": String(index), "data-open": "true"},
      el("summary", {}, icon("tools"), el("span", {}, shown(tool)), el("span", {class: "chip"}, "working")),
      el("pre", {dir: "auto"}, shown(JSON.stringify(input, null, 2)))));
  }

  toolDone({index, isError}) {
    const card = this.log.querySelector(`.tool[data-index="${Number(index)}"][data-open]`);
    card?.removeAttribute("data-open");
    card?.querySelector(".chip").replaceChildren(isError ? "failed" : "done");
  }

  note(text, failed = false) {
    this.log.append(el("p", {class: failed ? "note failed" : "note", dir: "auto"}, shown(text)));
    this.log.scrollTop = this.log.scrollHeight;
  }

  // What the person says

  async send() {
    const content = this.text.value.trim();
    if (!content && !this.files.length) return;
    if (content.startsWith("/")) {
      this.text.value = "";
      this.log.append(line("user", content));
      await this.command(content);
      return;
    }
    if (!this.tell({type: "send", content, attachments: this.files})) {
      this.note("Not connected yet: nothing was sent.", true);
      return;
    }
    this.log.append(line("user", content || this.files.map((one) => one.filename).join(", ")));
    this.text.value = "";
    this.files = [];
    this.attached.replaceChildren();
    this.log.scrollTop = this.log.scrollHeight;
  }

  async command(given) {
    const [, word, about] = /^\/(\S*)\s*([\s\S]*)$/.exec(given);
    try {
      if (word === "save") {
        const [topic, decision, reasoning] = about.split("|").map((part) => part.trim());
        if (!topic || !decision || !reasoning) { this.note(HELP[0], true); return; }
        this.note((await api.post("/api/mama/save", {topic, decision, reasoning})).message);
      } else if (word === "search" && about) {
        const {results} = await api.get("/api/mama/search", {q: about});
        for (const one of results) this.note(`${one.topic}: ${one.decision}`);
        if (!results.length) this.note("Nothing was found.");
      } else if (word === "checkpoint" && about) {
        this.note((await api.post("/api/checkpoint/save", {summary: about})).message);
      } else if (word === "resume") {
        const {checkpoint} = await api.get("/api/checkpoint/load");
        this.note([checkpoint.summary, checkpoint.next_steps].filter(Boolean).join("\n"));
      } else {
        const meant = HELP.filter((each) => word === "help" || each.split(/[ :]/)[0] === `/${word}`);
        for (const each of meant) this.note(each, word !== "help");
        if (!meant.length) this.note(`There is no command /${word}. See /help.`, true);
      }
    } catch (error) {
      this.note(error.message, true);
    }
  }

  async attach() {
    for (const file of [...this.picker.files].slice(0, 10 - this.files.length)) {
      try {
        const {filename, contentType} = await busy(this.picker, () => api.upload("/api/upload", file));
        const held = {filename, contentType};
        this.files.push(held);
        const item = el("li", {class: "chip"}, el("bdi", {}, shown(file.name)), iconButton(`Remove ${file.name}`, "close", {onclick: () => {
          this.files = this.files.filter((each) => each !== held);
          item.remove();
        }}));
        this.attached.append(item);
      } catch (error) {
        this.note(`${file.name}: ${error.message}`, true);
      }
    }
    this.picker.value = "";
    this.text.focus();
  }

  // Speech, where the browser has it

  dictation() {
    const Recognition = window.SpeechRecognition ?? window.webkitSpeechRecognition;
    if (!Recognition) return null;
    const made = button("Speak", {title: "The browser may send what you say to its maker.", onclick: () => {
      const hearing = new Recognition();
      hearing.lang = navigator.language;
      hearing.addEventListener("result", (event) => { this.text.value += event.results[0][0].transcript; this.text.focus(); });
      hearing.addEventListener("error", ({error}) => this.note(`The browser could not listen: ${error}`, true));
      hearing.addEventListener("end", () => made.removeAttribute("aria-pressed"));
      made.setAttribute("aria-pressed", "true");
      hearing.start();
    }});
    return made;
  }

  aloudButton() {
    const made = button("Read aloud", {kind: "quiet", "aria-pressed": "false", onclick: () => {
      this.aloud = !this.aloud;
      made.setAttribute("aria-pressed", String(this.aloud));
      if (!this.aloud) speechSynthesis.cancel();
    }});
    return made;
  }
}

function line(role, content, at = new Date().toISOString()) {
  return el("div", {class: `said-by ${role === "user" ? "person-line" : "agent-line"}`},
    el("span", {class: "visually-hidden"}, role === "user" ? "You: " : "Agent: "),
    el("div", {class: "said", dir: "auto"}, role === "user" ? shown(content) : markdown(content)), el("div", {class: "hint"}, moment(at, {exact: true})));
}

function kept() {
  try { return sessionStorage.getItem(KEPT); } catch { return null; }
}

function keep(id) {
  try {
    if (id) sessionStorage.setItem(KEPT, id);
    else sessionStorage.removeItem(KEPT);
  } catch { /* private windows keep nothing */ }
}

// Set-up: seven plain steps. Each one saves by itself, and can be skipped.

import {get} from "../../api.js";
import {el, shown} from "../../dom.js";
import {button, card, copyButton, linkButton, page, toast} from "../../ui.js";
import {facts, optional} from "./common.js";
import {discordForm, heartbeatForm, modelForm, slackForm, testButton} from "./forms.js";

const STEPS = [
  ["data", "Where the data is"], ["access", "Access"], ["model", "Model"], ["channels", "Discord and Slack"],
  ["heartbeat", "Heartbeat"], ["connect", "Connect a client"], ["done", "Done"],
];

export async function render({me, query, signal, go, refresh}) {
  const [config, status, guarded] = await Promise.all([
    get("/api/config", {}, {signal}), get("/api/dashboard/status", {}, {signal}), optional("/api/mcp-servers", {}, signal),
  ]);
  const at = Math.max(0, STEPS.findIndex(([name]) => name === query.get("step")));
  const address = (index) => `/setup?step=${STEPS[index][0]}`;
  const saved = async () => { await refresh(); toast("Saved."); };
  const contents = [dataStep, accessStep, modelStep, channelStep, heartbeatStep, connectStep, doneStep];
  const step = contents[at]({me, config, status, saved, refused: guarded.error});
  return page("Set up", {lede: "Seven steps. Each can be skipped, and done again later."},
    el("ol", {class: "steps", "aria-label": "Steps"}, STEPS.map(([, title], index) => el("li", {},
      el("a", {href: address(index), "aria-current": index === at ? "step" : null}, el("span", {class: "at"}, String(index + 1)), title)))),
    card(`${at + 1}. ${STEPS[at][1]}`, step),
    el("div", {class: "actions"},
      at > 0 && button("Back", {onclick: () => go(address(at - 1))}),
      at < STEPS.length - 1 && button("Next", {kind: "main", onclick: () => go(address(at + 1))}),
      at === STEPS.length - 1 && linkButton("Open the viewer", "/viewer", {kind: "main"})));
}

function command(text) {
  return el("div", {class: "command"}, el("code", {}, text), copyButton(text, `Copy ${text}`));
}

function dataStep({status}) {
  return el("div", {class: "stack"},
    el("p", {}, "Everything is stored in one data directory of the server's machine. Nothing leaves it unless you set up a model or a channel."),
    facts([["Space", status.database.path], ["Version", status.server.version]]),
    el("p", {}, "The first command shows the directory and what is in it; the second makes a backup:"),
    command("commonplace status"), command("commonplace backup ~/commonplace-backup"));
}

function accessStep({me, refused}) {
  return el("div", {class: "stack"},
    el("p", {}, me.signed_in ? "You have signed in." : "You are at the server's own machine, which needs no token."),
    refused ? el("p", {}, "A token is set for changes here: ", ...shown(refused.message))
      : el("p", {}, "You may change settings, run jobs and send messages."),
    el("p", {}, "Two things let you use all of this from another machine. First, a token of the server, which is set before it starts; from then on changes need a token at this machine, too:"),
    command("export MAMA_AUTH_TOKEN=\"$(openssl rand -hex 32)\""),
    el("p", {}, "Second, a token of your own to sign in to these pages with; it can be revoked at any time:"),
    command("commonplace token create --dialect mama --dialect commonplace --scope admin"));
}

function modelStep({config, saved}) {
  return el("div", {class: "stack"},
    el("p", {}, "Jobs, the heartbeat, reports and the chat ask a language model. The memory itself needs none."),
    modelForm(config, saved), testButton("llm", "Test the model"));
}

function channelStep({config, saved}) {
  return el("div", {class: "grid"},
    el("section", {class: "stack"}, el("h3", {}, "Discord"), discordForm(config, saved), testButton("discord", "Test Discord")),
    el("section", {class: "stack"}, el("h3", {}, "Slack"), slackForm(config, saved), testButton("slack", "Test Slack")));
}

function heartbeatStep({config, saved}) {
  return heartbeatForm(config, saved);
}

function connectStep() {
  return el("div", {class: "stack"},
    el("p", {}, "Each of these lets a client use this memory. The last one lists all clients that it knows."),
    command("commonplace connect claude-code --dialect mama"), command("commonplace connect claude-desktop --dialect mama"),
    command("commonplace connect cursor --dialect mama"), command("commonplace connect --list"));
}

function doneStep({config, status}) {
  const gateways = Object.entries(status.gateways).filter(([, one]) => one.configured && one.enabled).map(([name]) => name);
  return el("div", {class: "stack"}, facts([
    ["Model", config.agent.api_key ? `${config.agent.model}, with a stored key` : `${config.agent.model}, key from the environment or none`],
    ["Channels", gateways.length ? gateways.join(", ") : "none"],
    ["Heartbeat", config.heartbeat.enabled ? `every ${config.heartbeat.interval / 60_000} minutes` : "off"],
  ]), el("p", {}, "All of this can be changed in the ", el("a", {href: "/viewer/settings"}, "settings"), "."));
}

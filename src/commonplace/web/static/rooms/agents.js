// Agents: what waits for a person, what may come in, beings, and workspaces.

import {page} from "../ui.js";
import {beingsCard} from "./agents/beings.js";
import {optional} from "./agents/common.js";
import {connectCard, credentialCards} from "./agents/credentials.js";
import {waitingCard} from "./agents/waiting.js";
import {workspaceCard} from "./agents/workspace.js";

export async function render(context) {
  const {may, signal} = context;
  const here = "/v1/workspaces/current";
  const [tokens, beings, workspace, executions] = await Promise.all([
    may("admin") ? optional("/api/console/tokens", signal) : null,
    optional("/v1/beings", signal),
    optional(here, signal),
    optional(`${here}/executions`, signal, {waiting: true}),
  ]);
  const acts = await Promise.all((beings ?? []).slice(0, 20).map(async (being) => ({
    being, ...await optional(`/v1/beings/${encodeURIComponent(being.id)}/act/pending`, signal) ?? {actions: []},
  })));
  return page("Agents", {lede: "Who may use this memory, who lives in it, and what waits for you."},
    waitingCard(executions?.executions ?? [], acts, context),
    connectCard(),
    tokens && credentialCards(tokens.tokens, context),
    beings && beingsCard(beings, context),
    workspace && workspaceCard(workspace, context));
}

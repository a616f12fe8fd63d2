// The rooms of the application: a new one is a module and a line here (docs/console.md).
//
//   path    the first part of its address below /viewer/; the whole address for one elsewhere
//   title   its name in the navigation
//   icon    one of `ICONS` in dom.js
//   load    imports its module, whose `render(context)` returns the page
//   needs   the scope without which it is not offered (the server decides what it answers)
//   group   the heading in the navigation; none for the first rooms
//   operator  only for the operator of the server

export const ROOMS = [
  {path: "", title: "Home", icon: "home", load: () => import("./rooms/home.js")},
  {path: "memories", title: "Memories", icon: "book", load: () => import("./rooms/memories.js")},
  {path: "inbox", title: "Inbox", icon: "inbox", load: () => import("./rooms/inbox.js")},
  {path: "time", title: "Time", icon: "clock", load: () => import("./rooms/time.js")},
  {path: "imports", title: "Imports", icon: "import", load: () => import("./rooms/imports.js")},
  {path: "graph", title: "Graph", icon: "graph", load: () => import("./rooms/graph.js")},
  {path: "agents", title: "Agents", icon: "people", load: () => import("./rooms/agents.js")},
  {path: "secrets", title: "Secrets", icon: "key", needs: "admin", load: () => import("./rooms/secrets.js")},
  {path: "audit", title: "Audit", icon: "list", needs: "admin", load: () => import("./rooms/audit.js")},
  {path: "dashboard", title: "Dashboard", icon: "gauge", group: "MAMA", operator: true, load: () => import("./rooms/mama/dashboard.js")},
  {path: "decisions", title: "Decisions", icon: "graph", group: "MAMA", operator: true, load: () => import("./rooms/mama/decisions.js")},
  {path: "skills", title: "Skills", icon: "tools", group: "MAMA", operator: true, load: () => import("./rooms/mama/skills.js")},
  {path: "playground", title: "Playground", icon: "play", group: "MAMA", operator: true, load: () => import("./rooms/mama/playground.js")},
  {path: "settings", title: "Settings", icon: "gear", group: "MAMA", operator: true, load: () => import("./rooms/mama/settings.js")},
  {path: "/setup", title: "Set up", icon: "list", group: "MAMA", operator: true, load: () => import("./rooms/mama/setup.js")},
];

/** Whether somebody is the operator, to whom MAMA's rooms and the chat are offered. */
export function isOperator({space, scopes, dialects}) {
  return space === "default" && scopes.includes("admin") && (!dialects || dialects.includes("mama"));
}

/** The room of an address, and the parts of the address below it. */
export function roomAt(pathname) {
  const parts = pathname.split("/").filter(Boolean).map(decoded);
  const name = parts[0] === "viewer" ? parts[1] ?? "" : `/${parts[0] ?? ""}`;
  const room = ROOMS.find((each) => each.path === name);
  return {room, rest: parts.slice(name.startsWith("/") ? 1 : 2)};
}

/** The address of a room. */
export function addressOf(room) {
  return room.path.startsWith("/") ? room.path : room.path ? `/viewer/${room.path}` : "/viewer";
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

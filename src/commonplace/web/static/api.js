// Calls of the server's REST routes, as the person who has signed in.

/** An answer that is an error, in words for a person. */
export class ApiError extends Error {
  constructor(status, code, message, hint = "") {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

/** The server did not answer at all. */
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer.");
    this.hint = "It may have been stopped. This page goes on as soon as it is back.";
  }
}

let csrf = "";

/** The person who uses this page, with their scopes; null if they have to sign in. */
export async function whoIsHere() {
  const session = await fetched("/session", {}, true);
  csrf = session?.csrf_token ?? "";
  try {
    const me = await get("/api/console/me");
    // The server takes the scopes to change things from every GET; those of the session are complete.
    return {...me, scopes: session?.scopes ?? me.scopes, signed_in: Boolean(session?.signed_in)};
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return null;
    throw error;
  }
}

/** Sign in, by `{name, password}`, `{token}` or `{code}`. */
export async function signIn(fields) {
  const session = await fetched("/sign-in", {method: "POST", body: fields});
  csrf = session.csrf_token;
}

/** End the session of this browser. */
export async function signOut() {
  await fetched("/sign-out", {method: "POST", body: {}});
  csrf = "";
}

/** GET a path with parameters; those that are empty are left out, a list is sent joined by commas. */
export function get(path, parameters = {}, {signal} = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "" && value.length !== 0) query.set(name, value);
  }
  const asked = query.size ? `${path}?${query}` : path;
  return fetched(asked, {signal});
}

export const post = (path, body = {}) => changing("POST", path, body);
export const put = (path, body = {}) => changing("PUT", path, body);
export const patch = (path, body = {}) => changing("PATCH", path, body);
export const remove = (path) => changing("DELETE", path);

/** Upload a file. */
export function upload(path, file) {
  const body = new FormData();
  body.append("file", file, file.name);
  return changing("POST", path, body);
}

async function changing(method, path, body) {
  // Equal for a call and its repetition, so that it takes effect once.
  const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  try {
    return await fetched(path, {method, body, key});
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "CSRF_REFUSED") throw error;
    csrf = (await fetched("/session", {}, true))?.csrf_token ?? "";
    return fetched(path, {method, body, key});
  }
}

/** Announce that the server does not answer (the event `unreachable`), and throw the error. */
export function unreachable() {
  document.dispatchEvent(new CustomEvent("unreachable"));
  throw new Unreachable();
}

async function fetched(path, {method = "GET", body, key, signal} = {}, absent = false) {
  const headers = {accept: "application/json"};
  const isForm = body instanceof FormData; // the browser sets its content type
  if (body !== undefined && !isForm) headers["content-type"] = "application/json";
  if (method !== "GET" && csrf) headers["x-csrf-token"] = csrf;
  if (key) headers["idempotency-key"] = key;
  let response, text;
  try {
    response = await fetch(path, {
      method, headers, signal, cache: "no-store", credentials: "same-origin", redirect: "error",
      body: body === undefined || isForm ? body : JSON.stringify(body),
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    unreachable();
  }
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch { /* not JSON: an error that a proxy has written, perhaps */ }
  if (response.ok) return value;
  if (absent && (response.status === 404 || response.status === 401)) return null;
  throw errorOf(response.status, value);
}

function errorOf(status, value) {
  const told = typeof value?.error === "object" ? value.error : value ?? {};
  const message = told.message ?? (typeof told.error === "string" ? told.error : `The server answered with status ${status}.`);
  return new ApiError(status, told.code ?? "", message, told.hint ?? "");
}

// The service worker: keeps the files of the application, so that it opens without the server.
// The server puts `const SHELL = {version, files}` before the first line. Data is never kept.
const NAME = `commonplace-${SHELL.version}`;
const FILES = new Set(SHELL.files);

self.addEventListener("install", (event) => {
  event.waitUntil(
    caches.open(NAME)
      .then((cache) => cache.addAll(SHELL.files.map((file) => new Request(file, {cache: "no-cache"}))))
      .then(() => self.skipWaiting()),
  );
});

self.addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys()
      .then((names) => Promise.all(names
        .filter((name) => name.startsWith("commonplace-") && name !== NAME)
        .map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  );
});

function isPage(path) {
  return path === "/" || path === "/setup" || path === "/viewer" || path.startsWith("/viewer/");
}

self.addEventListener("fetch", (event) => {
  const {request} = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  const kept = FILES.has(url.pathname) ? url.pathname
    : request.mode === "navigate" && isPage(url.pathname) ? "/viewer" : null;
  if (kept !== null) event.respondWith(fromServerOrCache(request, kept));
});

// The server first, so that what is shown is never old; the cache if there is no answer.
async function fromServerOrCache(request, kept) {
  try {
    const response = await fetch(request);
    if (response.status < 500) return response;
  } catch { /* the server is not there */ }
  const cache = await caches.open(NAME);
  return (await cache.match(kept)) ?? Response.error();
}

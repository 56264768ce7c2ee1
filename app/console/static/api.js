// Requests to the server. A key, if needed, is kept for this tab only.
const KEY = "reachy-voice-key";

export class Forbidden extends Error {}

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY)),
};

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (/[^\w-]/.test(key.get())) throw new Forbidden("It has signs that no key has.");
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  const response = await fetch(`api/${path}`, { ...options, headers }).catch(() => { throw new Error("The server cannot be reached."); });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const message = body?.error?.message ?? response.statusText;
  throw response.status === 401 || response.status === 403 ? new Forbidden(message) : new Error(message);
}

export async function get(path) {
  return (await ask(path)).json();
}

export async function blob(path) {
  return (await ask(path)).blob();
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Reachy-Voice": "console" };
  return (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

// Server-sent events by fetch, since an EventSource cannot send a key. Reconnects by itself.
export function follow(path, onEvent, onState) {
  const AGAIN_MS = 1000;
  const stop = new AbortController();
  async function read() {
    const response = await ask(path, { signal: stop.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (text + value).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
        onEvent(fields.event ?? "message", JSON.parse(fields.data));
      }
    }
  }
  (async () => {
    while (!stop.signal.aborted) {
      try { await read(); } catch { /* reconnects */ }
      if (stop.signal.aborted) return;
      onState(false);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  })();
  return () => stop.abort();
}

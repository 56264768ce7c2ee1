// A Realtime API client that reconnects by itself.
import { key } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;

export class Realtime {
  // onEvent(event), onState("connecting" | "open" | "lost")
  constructor(onEvent, onState) {
    this.onEvent = onEvent;
    this.onState = onState;
    this.waitMs = FIRST_WAIT_MS;
    this.closed = false;
    // By this name the server recognises a client that reconnects.
    this.name = key.get() || Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    this.connect();
  }

  connect() {
    this.onState("connecting");
    const url = new URL("/v1/realtime?model=reachy-voice&sleep=true", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, ["realtime", `openai-insecure-api-key.${this.name}`]);
    this.socket = socket;
    socket.onopen = () => {
      this.waitMs = FIRST_WAIT_MS;
      this.onState("open");
    };
    socket.onmessage = ({ data }) => this.onEvent(JSON.parse(data));
    socket.onclose = ({ reason }) => {
      if (this.closed) return;
      this.onState("lost", reason);
      this.timer = setTimeout(() => this.connect(), this.waitMs);
      this.waitMs = Math.min(2 * this.waitMs, LONGEST_WAIT_MS);
    };
  }

  send(type, fields = {}) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type, ...fields }));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket.close();
  }
}

export function base64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

export function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}

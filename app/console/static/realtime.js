// A Realtime API client that reconnects by itself. It calls by WebRTC where it may, until a call does
// not connect; then it uses a WebSocket.
import { key } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const CALL_MS = 5000; // for a call to connect; in one network it takes a tenth of that
const QUERY = "?model=reachy-voice&sleep=true&speakers=true";

export class Realtime {
  // onEvent(event), onState("connecting" | "open" | "lost", why), onVoice(the MediaStream of a call)
  constructor(mayCall, onEvent, onState, onVoice) {
    Object.assign(this, { mayCall, onEvent, onState, onVoice });
    this.waitMs = FIRST_WAIT_MS;
    this.closed = this.fellBack = false;
    this.track = null; // of the microphone, in a call
    // By this name the server recognises a client that reconnects.
    this.name = key.get() || Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  connect() {
    this.onState("connecting");
    if (this.mayCall) return this.call();
    const url = new URL(`/v1/realtime${QUERY}`, location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    this.follow(new WebSocket(url, ["realtime", `openai-insecure-api-key.${this.name}`]));
  }

  async call() {
    const peer = new RTCPeerConnection();
    const channel = peer.createDataChannel("oai-events");
    this.peer = peer;
    this.sender = peer.addTransceiver(this.track ?? "audio").sender;
    this.follow(channel);
    peer.ontrack = ({ track }) => this.onVoice(new MediaStream([track]));
    peer.onconnectionstatechange = () => { if (peer.connectionState === "failed") this.opened ? this.lose(channel) : this.fallBack(channel); };
    this.timer = setTimeout(() => this.fallBack(channel), CALL_MS);
    try {
      await peer.setLocalDescription();
      const headers = { "Content-Type": "application/sdp", Authorization: `Bearer ${this.name}` };
      const asked = fetch(`/v1/realtime/calls${QUERY}`, { method: "POST", headers, body: peer.localDescription.sdp });
      const answer = await asked.catch(() => this.lose(channel)); // the server is away
      if (!answer) return;
      if (answer.status === 503 || answer.status === 429) { // later
        this.onEvent({ type: "error", ...(await answer.json()) });
        return this.lose(channel);
      }
      if (!answer.ok) throw new Error(answer.statusText);
      await peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
    } catch { this.fallBack(channel); }
  }

  fallBack(channel) {
    if (this.closed || channel !== this.channel) return;
    this.hangUp();
    this.mayCall = false;
    this.fellBack = true;
    this.connect();
  }

  // channel: a WebSocket, or the data channel of a call.
  follow(channel) {
    this.channel = channel;
    this.opened = false;
    channel.onmessage = ({ data }) => {
      if (channel !== this.channel) return;
      const event = JSON.parse(data);
      if (event.type === "session.created") this.open(); // a full server opens the channel, and says so
      this.onEvent(event);
    };
    channel.onclose = ({ reason }) => this.lose(channel, reason);
  }

  open() {
    this.opened = true;
    clearTimeout(this.timer);
    this.waitMs = FIRST_WAIT_MS;
    this.onState("open");
  }

  lose(channel, why) {
    if (this.closed || channel !== this.channel) return;
    this.hangUp();
    this.onState("lost", why);
    this.timer = setTimeout(() => this.connect(), this.waitMs);
    this.waitMs = Math.min(2 * this.waitMs, LONGEST_WAIT_MS);
  }

  get calling() { return Boolean(this.peer); }

  // What the call hears: a track, or null for nothing.
  speak(track) {
    if (track === this.track) return;
    this.track = track;
    if (this.peer) this.sender.replaceTrack(track);
  }

  send(type, fields = {}) {
    if (this.opened) this.channel?.send(JSON.stringify({ type, ...fields }));
  }

  close() {
    this.closed = true;
    this.hangUp();
  }

  hangUp() {
    clearTimeout(this.timer);
    this.channel?.close();
    this.peer?.close();
    this.channel = this.peer = null;
  }
}

export function base64(buffer) {
  return btoa(String.fromCharCode(...new Uint8Array(buffer)));
}

export function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}

// The browser's microphone and loudspeaker.
const CONSTRAINTS = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };

export class Sound {
  // onPiece(int16 ArrayBuffer at 24 kHz, level), onPlaying(boolean), onLost(): the microphone has gone
  constructor(onPiece, onPlaying, onLost) {
    Object.assign(this, { onPiece, onPlaying, onLost });
    this.stream = null;
    this.asked = 0; // how often the microphone was asked for or muted
  }

  // Call it in a click or key handler: browsers start no sound otherwise.
  async open() {
    this.context?.resume();
    this.context ??= new AudioContext({ latencyHint: "interactive" });
    this.loaded ??= this.load(this.context);
    try { await this.loaded; } catch (error) { this.close(); throw error; }
  }

  async load(context) {
    if (!context.audioWorklet) return; // the page is not encrypted, and stays mute
    await context.audioWorklet.addModule("player-worklet.js");
    await context.audioWorklet.addModule("capture-worklet.js");
    if (context !== this.context) return; // closed meanwhile
    this.player = new AudioWorkletNode(this.context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.player.port.onmessage = ({ data }) => this.onPlaying(data === "playing");
    this.mouth = analyser(this.context);
    this.player.connect(this.mouth);
    this.player.connect(this.context.destination);
    if (this.voice) this.hear(this.voice);
  }

  // The voice of a call, a MediaStream: played once there is a context, in place of pieces.
  hear(voice) {
    this.voice = voice;
    if (!this.mouth) return;
    this.loudspeaker ??= new Audio();
    this.loudspeaker.autoplay = true;
    this.loudspeaker.srcObject = voice;
    this.context.createMediaStreamSource(voice).connect(this.mouth);
  }

  get track() { return this.stream?.getAudioTracks()[0] ?? null; }

  get listening() { return Boolean(this.stream); }

  // Listens, unless it was muted, closed or asked again before the browser gave the microphone.
  async listen(deviceId) {
    if (!navigator.mediaDevices) throw new Error("this page is not encrypted");
    this.mute();
    const mine = this.asked;
    await this.open();
    if (mine !== this.asked) return;
    const audio = deviceId ? { ...CONSTRAINTS, deviceId: { exact: deviceId } } : CONSTRAINTS;
    const stream = await navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
      if (error.name !== "OverconstrainedError") throw error;
      return navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS }); // the chosen one has gone
    });
    if (mine !== this.asked) return end(stream);
    this.stream = stream;
    this.track.onended = this.onLost;
    this.source = this.context.createMediaStreamSource(this.stream);
    this.capture = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    this.capture.port.onmessage = ({ data }) => this.onPiece(data.pcm, data.level);
    this.source.connect(this.capture);
    this.ear = analyser(this.context);
    this.source.connect(this.ear);
  }

  mute() {
    this.asked += 1;
    this.source?.disconnect();
    this.capture?.port.close();
    if (this.stream) end(this.stream);
    this.source = this.capture = this.stream = this.ear = null;
  }

  play(pcm) {
    this.player?.port.postMessage(pcm, [pcm]);
  }

  flush() {
    this.player?.port.postMessage("flush");
  }

  close() {
    this.mute();
    this.loudspeaker?.pause();
    this.context?.close();
    this.context = this.loaded = this.mouth = null;
  }
}

function end(stream) {
  for (const track of stream.getTracks()) track.stop();
}

function analyser(context) {
  return new AnalyserNode(context, { fftSize: 1024, minDecibels: -75, maxDecibels: -20, smoothingTimeConstant: 0.6 });
}

// "granted", "denied", or "prompt" where the browser will ask or does not say.
export async function leave() {
  const asked = await navigator.permissions?.query({ name: "microphone" }).catch(() => null);
  return asked?.state ?? "prompt";
}

export const LOST = "The microphone was unplugged or blocked. Connect or allow it, then begin again.";

// Why there is no microphone.
export function refusal({ name, message }) {
  if (name === "NotAllowedError") return "The microphone is not allowed for this page. Allow it beside the browser's address bar.";
  if (name === "NotFoundError") return "No microphone was found. Connect one.";
  return `The microphone cannot be used: ${message}`;
}

export async function microphones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices.filter((device) => device.kind === "audioinput" && device.deviceId);
}

// The browser's microphone and loudspeaker.
const CONSTRAINTS = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };

export class Sound {
  // onPiece(int16 ArrayBuffer at 24 kHz, level), onPlaying(boolean)
  constructor(onPiece, onPlaying) {
    this.onPiece = onPiece;
    this.onPlaying = onPlaying;
    this.stream = null;
  }

  // Call it in a click or key handler: browsers start no sound otherwise.
  async open() {
    if (this.context) return this.context.resume();
    this.context = new AudioContext({ latencyHint: "interactive" });
    await this.context.audioWorklet.addModule("player-worklet.js");
    await this.context.audioWorklet.addModule("capture-worklet.js");
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

  async listen(deviceId) {
    await this.open();
    this.mute();
    const audio = deviceId ? { ...CONSTRAINTS, deviceId: { exact: deviceId } } : CONSTRAINTS;
    this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    this.source = this.context.createMediaStreamSource(this.stream);
    this.capture = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0, channelCount: 1, channelCountMode: "explicit" });
    this.capture.port.onmessage = ({ data }) => this.onPiece(data.pcm, data.level);
    this.source.connect(this.capture);
    this.ear = analyser(this.context);
    this.source.connect(this.ear);
  }

  mute() {
    this.source?.disconnect();
    for (const track of this.stream?.getTracks() ?? []) track.stop();
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
    this.context = this.mouth = null;
  }
}

function analyser(context) {
  return new AnalyserNode(context, { fftSize: 1024, minDecibels: -75, maxDecibels: -20, smoothingTimeConstant: 0.6 });
}

// "granted", "denied", or "prompt" where the browser will ask or does not say.
export async function leave() {
  const asked = await navigator.permissions?.query({ name: "microphone" }).catch(() => null);
  return asked?.state ?? "prompt";
}

export async function microphones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return devices.filter((device) => device.kind === "audioinput" && device.deviceId);
}

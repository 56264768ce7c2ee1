// int16 at 24 kHz → loudspeaker. Messages in: an ArrayBuffer, or "flush". Out: "playing", "silent".
import { Resampler } from "./resampler.js";

const RATE = 24000;

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.forget();
    this.sounding = false;
    this.port.onmessage = ({ data }) => {
      if (data === "flush") this.forget();
      else this.add(new Int16Array(data));
    };
  }

  forget() {
    this.resampler = new Resampler(RATE, sampleRate);
    this.queue = [];
    this.offset = 0;
  }

  add(pcm) {
    this.queue.push(this.resampler.push(Float32Array.from(pcm, (sample) => sample / 32768)));
  }

  process(_, [channels]) {
    const out = channels[0];
    let filled = 0;
    while (filled < out.length && this.queue.length) {
      const part = this.queue[0].subarray(this.offset, this.offset + out.length - filled);
      out.set(part, filled);
      filled += part.length;
      this.offset += part.length;
      if (this.offset >= this.queue[0].length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    for (const other of channels.slice(1)) other.set(out);
    if (filled > 0 !== this.sounding) {
      this.sounding = filled > 0;
      this.port.postMessage(this.sounding ? "playing" : "silent");
    }
    return true;
  }
}

registerProcessor("player", Player);

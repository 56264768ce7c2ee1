// Microphone → 20 ms chunks of int16 at 24 kHz, each with its level (RMS, 0 to 1).
import { Resampler } from "./resampler.js";

const RATE = 24000;
const PIECE = RATE / 50;

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.piece = new Int16Array(PIECE);
    this.filled = 0;
    this.energy = 0;
  }

  process([channels]) {
    if (!channels?.length) return true;
    for (const sample of this.resampler.push(channels[0])) {
      const clipped = Math.max(-1, Math.min(1, sample));
      this.energy += clipped * clipped;
      this.piece[this.filled++] = Math.round(clipped * 32767);
      if (this.filled === PIECE) this.send();
    }
    return true;
  }

  send() {
    const level = Math.sqrt(this.energy / PIECE);
    this.port.postMessage({ pcm: this.piece.buffer, level }, [this.piece.buffer]);
    this.piece = new Int16Array(PIECE);
    this.filled = 0;
    this.energy = 0;
  }
}

registerProcessor("capture", Capture);

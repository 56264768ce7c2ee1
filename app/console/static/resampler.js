// Band-limited resampling of a stream: windowed sinc, 12 zero crossings to each side.
export class Resampler {
  constructor(from, to) {
    this.step = from / to;
    this.cutoff = Math.min(1, to / from) * 0.94;
    this.half = Math.ceil(12 / this.cutoff);
    this.held = new Float32Array(2 * this.half);
    this.at = this.half;
  }

  push(samples) {
    if (this.step === 1) return samples.slice();
    const { half, step, cutoff } = this;
    const all = new Float32Array(this.held.length + samples.length);
    all.set(this.held);
    all.set(samples, this.held.length);
    const made = [];
    let at = this.at;
    for (; at + half < all.length; at += step) {
      let sum = 0;
      for (let i = Math.floor(at) - half + 1; i <= Math.floor(at) + half; i++) {
        const x = at - i;
        const window = 0.5 + 0.5 * Math.cos((Math.PI * x) / half);
        const angle = Math.PI * cutoff * x;
        sum += all[i] * window * (Math.abs(angle) < 1e-9 ? 1 : Math.sin(angle) / angle);
      }
      made.push(sum * cutoff);
    }
    const keep = Math.max(0, Math.floor(at) - half);
    this.held = all.slice(keep);
    this.at = at - keep;
    return Float32Array.from(made);
  }
}

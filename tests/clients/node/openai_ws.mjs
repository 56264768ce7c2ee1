// The official Node client, `OpenAIRealtimeWS` of npm `openai`: raw events over `ws`.

import net from 'node:net';

import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';

import { Moment, base64, hold, silence, stream, tone } from './common.mjs';

const TOOLS = [
  {
    type: 'function',
    name: 'get_weather',
    description: 'The weather in a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
    },
  },
];

async function connected(report, plan, session) {
  const baseURL = plan.url.replace(/^ws/, 'http').replace('/realtime', '');
  const client = new OpenAI({ apiKey: 'unused', baseURL });
  // It always dials wss:. A server without a certificate is reached by a plain connection below.
  const plain = { createConnection: ({ host, port }) => net.connect(port, host) };
  const options = plan.url.startsWith('wss:') ? {} : plain;
  const rt = new OpenAIRealtimeWS({ model: report.turn, options }, client);
  rt.on('error', (error) => report.errors.push(error.message));
  rt.on('event', (event) => note(report, event));
  const updated = new Promise((resolve) => rt.on('session.updated', resolve));
  await new Promise((resolve) => rt.socket.on('open', resolve));
  rt.send({ type: 'session.update', session: { type: 'realtime', ...session } });
  await updated;
  return rt;
}

function note(report, event) {
  report.events.push(event.type);
  switch (event.type) {
    case 'conversation.item.input_audio_transcription.completed':
      report.heard += event.transcript;
      break;
    case 'response.output_audio.delta':
      report.audio_bytes += Buffer.from(event.delta, 'base64').length;
      break;
    case 'response.output_audio_transcript.done':
      report.said.push(event.transcript);
      break;
    case 'response.output_text.done':
      report.said.push(event.text);
      break;
    case 'response.function_call_arguments.done':
      report.tool_calls.push({ name: event.name, arguments: event.arguments });
      break;
    case 'response.done':
      report.statuses.push(event.response.status);
      break;
  }
}

/** Resolves when so many responses are done. */
function responses(rt, report, count) {
  const moment = new Moment(() => report.statuses.length >= count);
  rt.on('event', () => moment.check());
  return moment.reached;
}

function append(rt, samples) {
  rt.send({ type: 'input_audio_buffer.append', audio: base64(samples) });
}

function say(rt, text) {
  const content = [{ type: 'input_text', text }];
  rt.send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content } });
}

const TRANSCRIBED = { transcription: { model: 'gpt-4o-mini-transcribe' } };

await hold({
  async voice(report, plan) {
    const rt = await connected(report, plan, { audio: { input: TRANSCRIBED } });
    const done = responses(rt, report, 1);
    await stream(tone('time', 500), (piece) => append(rt, piece), done);
    rt.close();
  },

  async push_to_talk(report, plan) {
    const input = { ...TRANSCRIBED, turn_detection: null };
    const rt = await connected(report, plan, { audio: { input } });
    append(rt, tone('time', 500));
    append(rt, silence(100));
    rt.send({ type: 'input_audio_buffer.commit' });
    rt.send({ type: 'response.create' });
    await responses(rt, report, 1);
    rt.close();
  },

  async text(report, plan) {
    const rt = await connected(report, plan, { output_modalities: ['text'] });
    say(rt, 'What time is it?');
    rt.send({ type: 'response.create' });
    await responses(rt, report, 1);
    rt.close();
  },

  async tool(report, plan) {
    const rt = await connected(report, plan, { tools: TOOLS, audio: { input: TRANSCRIBED } });
    rt.on('response.function_call_arguments.done', (event) => {
      const item = { type: 'function_call_output', call_id: event.call_id, output: 'sunny' };
      rt.send({ type: 'conversation.item.create', item });
    });
    const called = responses(rt, report, 1);
    const answered = responses(rt, report, 2);
    called.then(() => rt.send({ type: 'response.create' }));
    await stream(tone('weather', 500), (piece) => append(rt, piece), answered);
    rt.close();
  },

  async barge_in(report, plan) {
    const rt = await connected(report, plan, { audio: { input: TRANSCRIBED } });
    const speaking = new Promise((resolve) => rt.on('response.output_audio.delta', resolve));
    say(rt, 'Tell me a long story.');
    rt.send({ type: 'response.create' });
    const { item_id, response_id } = await speaking;
    let interrupted = false;
    rt.on('event', (event) => {
      if (event.type === 'input_audio_buffer.speech_started') {
        interrupted = true;
        const cut = { item_id, content_index: 0, audio_end_ms: 60 };
        rt.send({ type: 'conversation.item.truncate', ...cut });
      } else if (event.type === 'conversation.item.truncated') {
        rt.send({ type: 'conversation.item.retrieve', item_id });
      } else if (event.type === 'response.output_audio.delta') {
        if (interrupted && event.response_id === response_id) report.late_audio_bytes += 1;
      }
    });
    const done = responses(rt, report, 2);
    await stream(tone('wait', 500), (piece) => append(rt, piece), done);
    rt.close();
  },
});

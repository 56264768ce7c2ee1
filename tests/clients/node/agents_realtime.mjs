// OpenAI's Agents SDK for JavaScript, npm `@openai/agents-realtime`: sessions, agents and tools.

import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { z } from 'zod';

import { Moment, hold, silence, stream, tone } from './common.mjs';

async function connected(report, plan, config = {}) {
  const weather = tool({
    name: 'get_weather',
    description: 'The weather in a city.',
    parameters: z.object({ city: z.string() }),
    execute: async (given) => {
      report.tool_calls.push({ name: 'get_weather', arguments: JSON.stringify(given) });
      return 'sunny';
    },
  });
  const agent = new RealtimeAgent({
    name: 'Reachy',
    instructions: 'Be brief.',
    tools: report.turn === 'tool' ? [weather] : [],
  });
  const session = new RealtimeSession(agent, { transport: 'websocket', config });
  session.on('error', ({ error }) => report.errors.push(JSON.stringify(error?.error ?? error)));
  session.on('audio', ({ data }) => (report.audio_bytes += data.byteLength));
  session.on('audio_interrupted', () => report.events.push('audio_interrupted'));
  // An event that does not fit its schema goes no further than '*': so both are compared.
  let raw;
  session.transport.on('*', (event) => {
    if (raw) report.errors.push(`only generic: ${raw}`);
    raw = KNOWN.has(event.type) ? event.type : undefined;
    note(report, event);
  });
  for (const type of KNOWN) session.transport.on(type, () => (raw = undefined));
  await session.connect({ apiKey: 'unused', url: `${plan.url}?model=${report.turn}` });
  return session;
}

const KNOWN = new Set([
  'session.created',
  'session.updated',
  'input_audio_buffer.speech_started',
  'input_audio_buffer.speech_stopped',
  'input_audio_buffer.committed',
  'conversation.item.added',
  'conversation.item.done',
  'conversation.item.retrieved',
  'conversation.item.truncated',
  'conversation.item.input_audio_transcription.completed',
  'response.created',
  'response.output_item.added',
  'response.output_item.done',
  'response.content_part.added',
  'response.content_part.done',
  'response.output_audio.delta',
  'response.output_audio.done',
  'response.output_audio_transcript.delta',
  'response.output_audio_transcript.done',
  'response.function_call_arguments.delta',
  'response.function_call_arguments.done',
  'response.done',
]);

function note(report, event) {
  report.events.push(event.type);
  if (event.type === 'conversation.item.input_audio_transcription.completed') {
    report.heard += event.transcript;
  } else if (event.type === 'response.output_audio_transcript.done') {
    report.said.push(event.transcript);
  } else if (event.type === 'response.done') {
    report.statuses.push(event.response.status);
  }
}

function responses(session, report, count) {
  const moment = new Moment(() => report.statuses.length >= count);
  session.transport.on('turn_done', () => moment.check());
  return moment.reached;
}

const bytes = (samples) => samples.buffer;

/** The words of the conversation as the session's history has them. */
function history(session) {
  const items = session.history.filter((item) => item.type === 'message');
  return items.map((item) => ({
    role: item.role,
    status: item.status,
    text: item.content.map((part) => part.transcript ?? part.text ?? '').join(''),
  }));
}

await hold({
  async voice(report, plan) {
    const session = await connected(report, plan);
    const done = responses(session, report, 1);
    // After its transcript the SDK asks for the whole item, and puts it into its history.
    const kept = new Promise((resolve) => session.transport.on('conversation.item.retrieved', resolve));
    const both = Promise.all([done, kept]);
    await stream(tone('time', 500), (piece) => session.sendAudio(bytes(piece)), both);
    report.history = history(session);
    session.close();
  },

  async push_to_talk(report, plan) {
    const config = { audio: { input: { turnDetection: null } } };
    const session = await connected(report, plan, config);
    const done = responses(session, report, 1);
    session.sendAudio(bytes(tone('time', 500)));
    session.sendAudio(bytes(silence(100)), { commit: true });
    session.transport.requestResponse();
    await done;
    session.close();
  },

  async text(report, plan) {
    const session = await connected(report, plan);
    const done = responses(session, report, 1);
    session.sendMessage('What time is it?');
    await done;
    report.history = history(session);
    session.close();
  },

  async tool(report, plan) {
    const session = await connected(report, plan);
    const answered = responses(session, report, 2);
    await stream(tone('weather', 500), (piece) => session.sendAudio(bytes(piece)), answered);
    session.close();
  },

  async barge_in(report, plan) {
    const session = await connected(report, plan);
    const speaking = new Promise((resolve) => session.once('audio', resolve));
    session.sendMessage('Tell me a long story.');
    const { responseId } = await speaking;
    let interrupted = false;
    session.on('audio_interrupted', () => (interrupted = true));
    session.on('audio', (event) => {
      if (interrupted && event.responseId === responseId) report.late_audio_bytes += 1;
    });
    const cut = new Promise((resolve) => session.transport.on('conversation.item.retrieved', resolve));
    const both = Promise.all([responses(session, report, 2), cut]);
    await stream(tone('wait', 500), (piece) => session.sendAudio(bytes(piece)), both);
    report.history = history(session);
    session.close();
  },
});

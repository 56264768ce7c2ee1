// MCP in OpenAI's Agents SDK for JavaScript, as its documentation shows it: a hosted server by its
// address, whose calls are approved; and one of the voice server's owner. Prints a line of JSON.
// Its argument, JSON: {url, server_url, approve}.

import { hostedMcpTool } from '@openai/agents-core';
import { RealtimeAgent, RealtimeSession } from '@openai/agents-realtime';

const plan = JSON.parse(process.argv[2]);
const report = { tools: [], calls: [], said: [], responses: 0, errors: [] };
const server = plan.server_url
  ? { serverUrl: plan.server_url, requireApproval: 'always' }
  : { serverUrl: undefined };
const agent = new RealtimeAgent({
  name: 'Reachy',
  instructions: 'Be brief.',
  tools: [hostedMcpTool({ serverLabel: 'house', ...server })],
});
const config = { outputModalities: ['text'] };
const session = new RealtimeSession(agent, { transport: 'websocket', config });
session.on('error', ({ error }) => report.errors.push(JSON.stringify(error?.error ?? `${error}`)));
session.on('tool_approval_requested', (_context, _agent, { approvalItem }) => {
  if (plan.approve) session.approve(approvalItem);
  else session.reject(approvalItem);
});
session.on('mcp_tool_call_completed', (_context, _agent, call) => {
  report.calls.push([call.name, call.output ?? '']);
});
const listed = new Promise((resolve) => session.on('mcp_tools_changed', resolve));
const answered = new Promise((resolve) => {
  session.transport.on('*', (event) => {
    if (event.type === 'response.created') report.responses += 1;
    if (event.type !== 'response.output_text.done') return;
    report.said.push(event.text);
    resolve();
  });
});
await session.connect({ apiKey: 'unused', url: plan.url });
report.tools = (await listed).map(({ name }) => name);
session.sendMessage('What is it like outside?');
await answered;
await new Promise((resolve) => setTimeout(resolve, 1000)); // another answer would be one too many
session.close();
console.log(JSON.stringify(report));

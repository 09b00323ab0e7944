// The official `@anthropic-ai/sdk` package.

import assert from "node:assert/strict";
import test from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { WEATHER, anthropic, checkWeather, key, model } from "./server.js";

const HELLO = [{ role: "user", content: "Tell me about the river." }];
const TOOLS = [{ name: "weather", description: "Weather", input_schema: WEATHER }];

const body = (options = {}) => ({ model, messages: HELLO, max_tokens: 24, temperature: 0, ...options });
const create = (options) => anthropic.messages.create(body(options));
const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

test("messages: whole and streamed are the same", async () => {
  const whole = await create();
  assert.equal(whole.role, "assistant");
  assert.ok(["end_turn", "max_tokens"].includes(whole.stop_reason));
  let text = "";
  const stream = anthropic.messages.stream(body()).on("text", (delta) => {
    text += delta;
  });
  const final = await stream.finalMessage();
  assert.equal(text, textOf(whole));
  assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
});

test("messages: raw events", async () => {
  const kinds = [];
  for await (const event of await create({ stream: true })) if (event.type !== "ping") kinds.push(event.type);
  assert.equal(kinds[0], "message_start");
  assert.deepEqual(kinds.slice(-2), ["message_delta", "message_stop"]);
});

test("messages: stop sequences", async () => {
  const text = textOf(await create());
  const word = text.slice(text.length >> 1).slice(0, 5);
  const stopped = await create({ stop_sequences: [word] });
  assert.equal(textOf(stopped), text.slice(0, text.indexOf(word)));
  assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", word]);
});

test("messages: tools in two rounds", async () => {
  const first = await create({ tools: TOOLS, tool_choice: { type: "any" }, max_tokens: 800 });
  assert.equal(first.stop_reason, "tool_use");
  const calls = first.content.filter((block) => block.type === "tool_use");
  for (const call of calls) checkWeather(call.input);
  const results = calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: "Rain" }));
  const messages = [...HELLO, { role: "assistant", content: first.content }, { role: "user", content: results }];
  const second = await create({ messages, tools: TOOLS, tool_choice: { type: "none" } });
  assert.ok(second.content.every((block) => block.type !== "tool_use"));
});

test("messages: streamed tool input", async () => {
  const choice = { type: "tool", name: "weather", disable_parallel_tool_use: true };
  const final = await anthropic.messages.stream(body({ tools: TOOLS, tool_choice: choice, max_tokens: 800 })).finalMessage();
  const calls = final.content.filter((block) => block.type === "tool_use");
  assert.equal(calls.length, 1);
  checkWeather(calls[0].input);
});

test("JSON by schema", async () => {
  const answer = await create({ output_config: { format: { type: "json_schema", schema: WEATHER } }, max_tokens: 800 });
  checkWeather(JSON.parse(textOf(answer)));
});

test("count_tokens counts what is charged", async () => {
  const counted = await anthropic.messages.countTokens({ model, messages: HELLO, system: "You write stories." });
  const { usage } = await create({ system: "You write stories.", max_tokens: 1 });
  assert.equal(counted.input_tokens, usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0));
});

test("errors are typed", async () => {
  await assert.rejects(create({ temperature: 7 }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.error.error.type, "invalid_request_error");
    return /temperature/.test(error.message);
  });
  await assert.rejects(create({ colour: "blue" }), /colour/);
  await assert.rejects(create({ model: "no-such-model" }), Anthropic.NotFoundError);
});

test("a wrong key", { skip: key === "none" && "the server asks for no key" }, async () => {
  await assert.rejects(anthropic.withOptions({ apiKey: "wrong" }).messages.create(body()), Anthropic.AuthenticationError);
});

// The official `openai` package.

import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";
import { WEATHER, checkWeather, key, model, openai } from "./server.js";

const HELLO = [{ role: "user", content: "Tell me about the river." }];
const TOOLS = [{ type: "function", function: { name: "weather", description: "Weather", parameters: WEATHER, strict: true } }];
const SCHEMA = { type: "json_schema", json_schema: { name: "weather", schema: WEATHER, strict: true } };

const chat = (options = {}) => openai.chat.completions.create({ model, messages: HELLO, max_tokens: 24, temperature: 0, ...options });

test("models", async () => {
  const found = [];
  for await (const one of openai.models.list()) found.push(one.id);
  assert.ok(found.includes(model));
  assert.equal((await openai.models.retrieve(model)).id, model);
});

test("chat: whole and streamed are the same", async () => {
  const whole = await chat({ temperature: 0.9, seed: 7 });
  assert.equal(whole.object, "chat.completion");
  assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
  let text = "";
  let reason = null;
  let usage = null;
  for await (const chunk of await chat({ temperature: 0.9, seed: 7, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("chat: the stream helper gathers the answer", async () => {
  const stream = openai.chat.completions.stream({ model, messages: HELLO, max_tokens: 12, temperature: 0 });
  const content = await stream.finalContent();
  assert.equal(content, (await chat({ max_tokens: 12 })).choices[0].message.content);
});

test("chat: seeds", async () => {
  const texts = [];
  for (const seed of [1, 1, 2, 3]) texts.push((await chat({ temperature: 1.5, top_p: 1, seed })).choices[0].message.content);
  assert.equal(texts[0], texts[1]);
  assert.ok(new Set(texts).size > 1);
});

test("chat: stop", async () => {
  const text = (await chat()).choices[0].message.content;
  const word = text.slice(text.length >> 1).slice(0, 5);
  const stopped = await chat({ stop: ["never to be found", word] });
  assert.equal(stopped.choices[0].message.content, text.slice(0, text.indexOf(word)));
  assert.equal(stopped.choices[0].finish_reason, "stop");
});

test("chat: logprobs", async () => {
  const { logprobs, message } = (await chat({ logprobs: true, top_logprobs: 3, max_tokens: 6 })).choices[0];
  for (const token of logprobs.content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 3);
    assert.equal(token.top_logprobs[0].token, token.token);
  }
  const said = Buffer.concat(logprobs.content.map((token) => Buffer.from(token.bytes))).toString();
  assert.ok(said.startsWith(message.content));
});

test("chat: a second turn reuses the first", async () => {
  const turn = [{ role: "user", content: "Sand, gravel, and the stream that left them. ".repeat(12) }];
  const first = await chat({ messages: turn });
  const answer = { role: "assistant", content: first.choices[0].message.content };
  const second = await chat({ messages: [...turn, answer, { role: "user", content: "And then?" }] });
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens / 2);
});

test("tools: two rounds", async () => {
  const { message, finish_reason: reason } = (await chat({ tools: TOOLS, tool_choice: "required", max_tokens: 800 })).choices[0];
  assert.equal(reason, "tool_calls");
  for (const call of message.tool_calls) checkWeather(JSON.parse(call.function.arguments));
  const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "Rain" }));
  const second = (await chat({ messages: [...HELLO, message, ...results], tools: TOOLS, tool_choice: "none" })).choices[0];
  assert.equal(second.message.tool_calls?.length ?? 0, 0);
  assert.equal(typeof second.message.content, "string");
});

test("tools: streamed arguments", async () => {
  const stream = openai.chat.completions.stream({
    model, messages: HELLO, tools: TOOLS, tool_choice: "required", parallel_tool_calls: false, max_tokens: 800, temperature: 0,
  });
  const { message, finish_reason: reason } = (await stream.finalChatCompletion()).choices[0];
  assert.equal(reason, "tool_calls");
  assert.equal(message.tool_calls.length, 1);
  checkWeather(JSON.parse(message.tool_calls[0].function.arguments));
});

test("JSON by schema", async () => {
  for (const seed of [1, 2, 3]) {
    const completion = await openai.chat.completions.parse({
      model, messages: HELLO, response_format: SCHEMA, reasoning_effort: "none", max_tokens: 800, temperature: 1.5, seed,
    });
    checkWeather(JSON.parse(completion.choices[0].message.content));
  }
});

test("completions", async () => {
  const options = { model, prompt: "The configuration file ", max_tokens: 12, temperature: 0 };
  const whole = await openai.completions.create(options);
  let text = "";
  for await (const chunk of await openai.completions.create({ ...options, stream: true })) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, whole.choices[0].text);
});

test("responses: whole, streamed, tools, schema", async () => {
  const options = { model, input: "Tell me about the river.", max_output_tokens: 24, temperature: 0 };
  const whole = await openai.responses.create(options);
  let text = "";
  let last = null;
  for await (const event of await openai.responses.create({ ...options, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.match(last.type, /^response\.(completed|incomplete)$/);
  const tool = { type: "function", name: "weather", parameters: WEATHER, strict: true };
  const called = await openai.responses.create({ ...options, tools: [tool], tool_choice: "required", max_output_tokens: 800 });
  const call = called.output.find((item) => item.type === "function_call");
  checkWeather(JSON.parse(call.arguments));
  const format = { type: "json_schema", name: "weather", schema: WEATHER, strict: true };
  const formed = await openai.responses.create({ ...options, text: { format }, reasoning: { effort: "none" }, max_output_tokens: 800 });
  checkWeather(JSON.parse(formed.output_text));
});

test("errors are typed and name the parameter", async () => {
  await assert.rejects(chat({ temperature: -1 }), (error) => error instanceof OpenAI.BadRequestError && error.param === "temperature");
  await assert.rejects(chat({ colour: "blue" }), (error) => error instanceof OpenAI.BadRequestError && error.param === "colour");
  await assert.rejects(chat({ stream: true, colour: "blue" }), OpenAI.BadRequestError);
  await assert.rejects(chat({ model: "no-such-model" }), OpenAI.NotFoundError);
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
  await assert.rejects(chat({ messages: [{ role: "user", content: [image] }] }), /image/);
});

test("a wrong key", { skip: key === "none" && "the server asks for no key" }, async () => {
  await assert.rejects(openai.withOptions({ apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
});

test("an aborted stream ends, and the server goes on", async () => {
  const stream = await chat({ stream: true, max_tokens: 500, temperature: 1.5 });
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    stream.controller.abort();
    break;
  }
  assert.ok((await chat({ max_tokens: 2 })).usage.completion_tokens > 0);
});

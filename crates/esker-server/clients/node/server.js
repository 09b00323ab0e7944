// The running server that the suites speak to. ESKER_URL: its address, without a path. ESKER_KEY: its API key, if it has one.
// The model need not be able to do anything: tests hold the server to what must be true of every answer.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

if (!process.env.ESKER_URL) throw new Error("ESKER_URL is not set: run clients/run.sh");

export const url = process.env.ESKER_URL.replace(/\/$/, "");
export const key = process.env.ESKER_KEY ?? "none";

// No retries: an error has to be seen.
export const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, timeout: 60_000 });
export const anthropic = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0, timeout: 60_000 });
export const model = (await openai.models.list()).data[0].id;

export const WEATHER = {
  type: "object",
  properties: {
    city: { type: "string", enum: ["Oslo", "Kyoto", "Quito"] },
    days: { type: "integer", minimum: 1, maximum: 7 },
  },
  required: ["city", "days"],
  additionalProperties: false,
};

/// The arguments follow the schema `WEATHER`.
export function checkWeather(value) {
  assert.deepEqual(Object.keys(value).sort(), ["city", "days"]);
  assert.ok(WEATHER.properties.city.enum.includes(value.city));
  assert.ok(Number.isInteger(value.days) && value.days >= 1 && value.days <= 7);
}

"""Messages and count_tokens with the official client."""

import json

import pytest
from conftest import WEATHER, check_weather

HELLO = [{"role": "user", "content": "Tell me about the river."}]
TOOLS = [{"name": "weather", "description": "Weather of the next days", "input_schema": WEATHER}]


@pytest.fixture
def message(anthropic_client, model):
    def create(messages=HELLO, **options):
        options = dict(max_tokens=24) | options
        # The client holds some parameters to be of the past, the server honours them.
        body = {"temperature": 0} | options.pop("extra_body", {})
        return anthropic_client.messages.create(model=model, messages=messages, extra_body=body, **options)

    return create


def text_of(answer) -> str:
    return "".join(block.text for block in answer.content if block.type == "text")


def test_message(message, model):
    answer = message()
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", model)
    assert answer.id and answer.stop_reason in ("end_turn", "max_tokens")
    assert answer.usage.input_tokens > 0 and 0 < answer.usage.output_tokens <= 24
    assert text_of(answer) == text_of(message())


def test_length(message):
    answer = message(max_tokens=2)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 2


def test_stream_says_the_same(anthropic_client, message, model):
    whole = message()
    with anthropic_client.messages.stream(model=model, messages=HELLO, max_tokens=24, extra_body={"temperature": 0}) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert said == text_of(whole) == text_of(final)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_stream_events_are_in_order(message):
    kinds = [event.type for event in message(stream=True) if event.type != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") >= 1


def test_stop_sequence(message):
    text = text_of(message())
    word = text[len(text) // 2 :][:5]
    answer = message(stop_sequences=["never to be found", word])
    assert text_of(answer) == text[: text.index(word)]
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", word)


def test_tools_in_two_rounds(message):
    first = message(tools=TOOLS, tool_choice={"type": "any"}, max_tokens=800)
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert calls and calls[0].name == "weather" and calls[0].id
    check_weather(calls[0].input)
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain, 7 degrees"} for call in calls]
    turns = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = message(messages=turns, tools=TOOLS, tool_choice={"type": "none"})
    assert second.stop_reason in ("end_turn", "max_tokens")
    assert all(block.type != "tool_use" for block in second.content)


def test_streamed_tool_input(anthropic_client, model):
    with anthropic_client.messages.stream(
        model=model,
        messages=HELLO,
        max_tokens=800,
        tools=TOOLS,
        tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        extra_body={"temperature": 0},
    ) as stream:
        final = stream.get_final_message()
    (call,) = [block for block in final.content if block.type == "tool_use"]
    check_weather(call.input)


def test_json_by_schema(message):
    answer = message(output_config={"format": {"type": "json_schema", "schema": WEATHER}}, max_tokens=800)
    assert answer.stop_reason == "end_turn"
    check_weather(json.loads(text_of(answer)))


def test_count_tokens_counts_what_is_charged(anthropic_client, message, model):
    parts = dict(system="You write stories.", tools=TOOLS)
    counted = anthropic_client.messages.count_tokens(model=model, messages=HELLO, **parts).input_tokens
    usage = message(max_tokens=1, **parts).usage
    cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
    assert counted == usage.input_tokens + cached
    assert counted > anthropic_client.messages.count_tokens(model=model, messages=HELLO).input_tokens


def test_system_and_blocks(message):
    blocks = [{"role": "user", "content": [{"type": "text", "text": HELLO[0]["content"]}]}]
    assert text_of(message(messages=blocks)) == text_of(message())
    assert message(system="You write stories.").usage.input_tokens != message().usage.input_tokens

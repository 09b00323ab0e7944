"""Tools and JSON by schema: the form of what comes is certain, whatever the model knows.

Limits leave room for all the white space that a model may put between the parts of its JSON, and reasoning is off.
"""

import json
from enum import Enum

import pytest
from conftest import WEATHER, check_weather
from pydantic import BaseModel, Field

QUESTION = [{"role": "user", "content": "What will the weather be in Oslo?"}]
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "Weather of the next days", "parameters": WEATHER, "strict": True},
    }
]
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}


@pytest.fixture
def chat(openai_client, model):
    def create(messages=QUESTION, **options):
        options = dict(temperature=0, max_tokens=800) | options
        return openai_client.chat.completions.create(model=model, messages=messages, **options)

    return create


def test_two_rounds(chat):
    first = chat(tools=TOOLS, tool_choice="required")
    (choice,) = first.choices
    assert choice.finish_reason == "tool_calls"
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.id and call.function.name == "weather"
    check_weather(json.loads(call.function.arguments))

    results = [{"role": "tool", "tool_call_id": c.id, "content": "Rain, 7 degrees"} for c in choice.message.tool_calls]
    second = chat(messages=[*QUESTION, choice.message, *results], tools=TOOLS, tool_choice="none", max_tokens=12)
    assert second.choices[0].finish_reason in ("stop", "length")
    assert not second.choices[0].message.tool_calls
    alone = chat(tools=TOOLS, tool_choice="none", max_tokens=1)
    assert second.usage.prompt_tokens > alone.usage.prompt_tokens


def test_a_stream_builds_the_same_call(chat):
    options = dict(tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    whole = chat(**options).choices[0].message.tool_calls
    assert len(whole) == 1
    name, arguments, ids, reasons = "", "", [], []
    for chunk in chat(stream=True, **options):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                assert call.index == 0
                ids += [call.id] if call.id else []
                name += call.function.name or ""
                arguments += call.function.arguments or ""
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert reasons == ["tool_calls"]
    assert len(ids) == 1 and name == "weather"
    assert json.loads(arguments) == json.loads(whole[0].function.arguments)


def test_a_named_function_is_called(chat):
    choice = {"type": "function", "function": {"name": "weather"}}
    message = chat(tools=[CLOCK, *TOOLS], tool_choice=choice).choices[0].message
    assert [call.function.name for call in message.tool_calls] == ["weather"]
    check_weather(json.loads(message.tool_calls[0].function.arguments))


def test_a_function_without_arguments(chat):
    choice = {"type": "function", "function": {"name": "clock"}}
    (call,) = chat(tools=[CLOCK, *TOOLS], tool_choice=choice).choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {}


def test_auto_answers_or_calls(chat):
    (choice,) = chat(tools=TOOLS, tool_choice="auto", max_tokens=24).choices
    message = choice.message
    # A call that the limit cut off is there as far as it came.
    assert message.tool_calls or message.content is not None
    if choice.finish_reason == "tool_calls":
        assert all(json.loads(call.function.arguments) is not None for call in message.tool_calls)


class Kind(str, Enum):
    ridge = "ridge"
    valley = "valley"


class Landform(BaseModel):
    kind: Kind
    length_km: int = Field(ge=1, le=400)
    wooded: bool
    layers: list[Kind] = Field(min_length=1, max_length=3)


def test_parse_gives_an_object(openai_client, model):
    completion = openai_client.chat.completions.parse(
        model=model,
        messages=[{"role": "user", "content": "Describe an esker."}],
        response_format=Landform,
        reasoning_effort="none",
        temperature=0,
        max_tokens=2000,
    )
    parsed = completion.choices[0].message.parsed
    assert isinstance(parsed, Landform)
    assert 1 <= parsed.length_km <= 400 and 1 <= len(parsed.layers) <= 3


def test_any_seed_keeps_to_the_schema(chat):
    schema = {"type": "json_schema", "json_schema": {"name": "weather", "schema": WEATHER, "strict": True}}
    for seed in range(4):
        completion = chat(response_format=schema, reasoning_effort="none", temperature=1.5, top_p=1, seed=seed, max_tokens=800)
        check_weather(json.loads(completion.choices[0].message.content))
        assert completion.choices[0].finish_reason == "stop"


def test_streamed_schema(openai_client, model):
    with openai_client.chat.completions.stream(
        model=model,
        messages=[{"role": "user", "content": "Describe an esker."}],
        response_format=Landform,
        reasoning_effort="none",
        temperature=0,
        max_tokens=2000,
    ) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Landform)


def test_json_object(chat):
    (choice,) = chat(response_format={"type": "json_object"}, reasoning_effort="none", max_tokens=120).choices
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    else:
        assert choice.message.content.lstrip().startswith("{")

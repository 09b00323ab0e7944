"""Models, plain completions, the Responses API."""

import json

import openai
import pytest
from conftest import WEATHER, check_weather

PROMPT = "The configuration file "
FUNCTION = {"type": "function", "name": "weather", "description": "Weather", "parameters": WEATHER, "strict": True}


def test_models(openai_client, model):
    page = openai_client.models.list()
    assert page.object == "list" and len(page.data) >= 1
    one = openai_client.models.retrieve(model)
    assert (one.id, one.object) == (model, "model")
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("no-such-model")


@pytest.fixture
def complete(openai_client, model):
    def create(prompt=PROMPT, **options):
        options = dict(temperature=0, max_tokens=12) | options
        return openai_client.completions.create(model=model, prompt=prompt, **options)

    return create


def test_completion(complete):
    completion = complete()
    assert completion.object == "text_completion"
    assert completion.choices[0].text != ""
    assert completion.choices[0].finish_reason in ("stop", "length")
    assert completion.usage.completion_tokens <= 12
    assert "".join(chunk.choices[0].text for chunk in complete(stream=True) if chunk.choices) == completion.choices[0].text


def test_completion_stop_and_seed(complete):
    text = complete().choices[0].text
    stop = text[len(text) // 2 :][:4]
    assert complete(stop=[stop]).choices[0].text == text[: text.index(stop)]
    texts = [complete(temperature=1.5, seed=9).choices[0].text for _ in range(2)]
    assert texts[0] == texts[1]


def test_completion_logprobs(complete):
    choice = complete(logprobs=2, max_tokens=5).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens).startswith(choice.text)
    assert all(value <= 0 for value in logprobs.token_logprobs)
    assert all(len(top) >= 1 for top in logprobs.top_logprobs)


@pytest.fixture
def respond(openai_client, model):
    def create(input="Tell me about the river.", **options):
        options = dict(temperature=0, max_output_tokens=24) | options
        return openai_client.responses.create(model=model, input=input, **options)

    return create


def test_response(respond, model):
    response = respond()
    assert response.object == "response" and response.model == model
    assert response.status in ("completed", "incomplete")
    if response.status == "incomplete":
        assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == respond().output_text
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens and usage.output_tokens <= 24


def test_response_stream(respond):
    whole = respond()
    events = list(respond(stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created"
    assert kinds[-1] in ("response.completed", "response.incomplete")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text == events[-1].response.output_text


def test_response_logprobs(respond):
    response = respond(include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=6)
    (part,) = response.output[-1].content
    assert len(part.logprobs) > 0
    for token in part.logprobs:
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert len(token.top_logprobs) == 2


def test_response_instructions_and_turns(respond):
    turns = [
        {"role": "user", "content": "What is an esker?"},
        {"role": "assistant", "content": "A ridge."},
        {"role": "user", "content": [{"type": "input_text", "text": "And then?"}]},
    ]
    short = respond(input=turns)
    long = respond(input=turns, instructions="You know about landforms.")
    assert long.usage.input_tokens > short.usage.input_tokens


def test_response_tools_in_two_rounds(respond):
    question = [{"role": "user", "content": "What will the weather be?"}]
    first = respond(input=question, tools=[FUNCTION], tool_choice="required", max_output_tokens=800)
    calls = [item for item in first.output if item.type == "function_call"]
    assert calls and calls[0].name == "weather" and calls[0].call_id
    check_weather(json.loads(calls[0].arguments))
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "Rain"} for call in calls]
    second = respond(input=[*question, *calls, *results], tools=[FUNCTION], tool_choice="none")
    assert not [item for item in second.output if item.type == "function_call"]


def test_response_tool_stream(respond):
    arguments, name = "", None
    for event in respond(tools=[FUNCTION], tool_choice="required", parallel_tool_calls=False, max_output_tokens=800, stream=True):
        if event.type == "response.output_item.added" and event.item.type == "function_call":
            name = event.item.name
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
    assert name == "weather"
    check_weather(json.loads(arguments))


def test_response_schema(respond):
    form = {"format": {"type": "json_schema", "name": "weather", "schema": WEATHER, "strict": True}}
    check_weather(json.loads(respond(text=form, reasoning={"effort": "none"}, max_output_tokens=800).output_text))

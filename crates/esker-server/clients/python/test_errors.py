"""What is wrong is refused by name, as the exception that the client has for it; nothing is ignored in silence."""

import anthropic
import openai
import pytest

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def refused(openai_client, model):
    """Sends a chat completion that has to be refused with status 400; gives the error."""

    def send(**options):
        options = dict(model=model, messages=HELLO, max_tokens=4) | options
        with pytest.raises(openai.BadRequestError) as caught:
            openai_client.chat.completions.create(**options)
        assert caught.value.type == "invalid_request_error"
        return caught.value

    return send


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", "hot"),
        ("top_p", 2),
        ("max_tokens", 0),
        ("n", 0),
        ("top_logprobs", 3),
        ("logit_bias", {"not a token": 1}),
        ("stop", [1]),
        ("seed", "x"),
        ("response_format", {"type": "poem"}),
        ("tool_choice", "required"),
        ("messages", []),
    ],
)
def test_wrong_values_are_named(refused, name, value):
    error = refused(extra_body={name: value})
    assert name in error.message
    assert (error.param or "").startswith(name)


def test_unknown_parameters_are_named(refused):
    error = refused(extra_body={"colour": "blue"})
    assert error.param == "colour" and "colour" in error.message


def test_images_are_refused_clearly(refused):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    error = refused(messages=[{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}])
    assert "image" in error.message


def test_a_prompt_that_is_too_long(refused):
    error = refused(messages=[{"role": "user", "content": "sand and gravel " * 20_000}])
    assert error.code == "context_length_exceeded"


def test_a_schema_that_is_none(refused):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no such type"}}}
    error = refused(response_format=form)
    assert "response_format" in error.message


def test_an_error_in_a_stream_request_is_a_status(refused):
    assert refused(stream=True, extra_body={"colour": "blue"}).param == "colour"


def test_an_unknown_model(openai_client):
    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.chat.completions.create(model="no-such-model", messages=HELLO, max_tokens=4)
    assert "no-such-model" in caught.value.message


def test_an_unknown_path(openai_client):
    with pytest.raises(openai.NotFoundError):
        openai_client.post("/embeddings-of-another-world", cast_to=object, body={})


def test_a_wrong_key(openai_client, anthropic_client, model, key):
    if key == "none":
        pytest.skip("the server asks for no key")
    with pytest.raises(openai.AuthenticationError):
        openai_client.with_options(api_key="wrong").models.list()
    with pytest.raises(anthropic.AuthenticationError):
        anthropic_client.with_options(api_key="wrong").messages.create(model=model, messages=HELLO, max_tokens=4)


def test_anthropic_errors_are_typed(anthropic_client, model):
    with pytest.raises(anthropic.BadRequestError) as caught:
        anthropic_client.messages.create(model=model, messages=HELLO, max_tokens=4, extra_body={"temperature": 7})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "temperature" in caught.value.message
    with pytest.raises(anthropic.BadRequestError) as caught:
        anthropic_client.messages.create(model=model, messages=HELLO, max_tokens=4, extra_body={"colour": "blue"})
    assert "colour" in caught.value.message
    with pytest.raises(anthropic.NotFoundError):
        anthropic_client.messages.create(model="no-such-model", messages=HELLO, max_tokens=4)


def test_the_server_lives_on(openai_client, model):
    completion = openai_client.chat.completions.create(model=model, messages=HELLO, max_tokens=2)
    assert completion.usage.completion_tokens > 0

"""Chat completions: text, streams, seeds, stops, likelihoods, counts."""

from concurrent.futures import ThreadPoolExecutor

import pytest

HELLO = [{"role": "user", "content": "Tell me about the river."}]
STORY = [{"role": "system", "content": "You write stories."}, {"role": "user", "content": "Once upon a time"}]


@pytest.fixture
def chat(openai_client, model):
    def create(messages=HELLO, **options):
        options.setdefault("max_tokens", 24)
        return openai_client.chat.completions.create(model=model, messages=messages, **options)

    return create


def text_of(completion) -> str:
    return completion.choices[0].message.content


def joined(stream):
    """A stream read to its end: text, reasons to finish, usage."""
    text, reasons, usage = "", [], None
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        if chunk.usage:
            assert chunk.choices == []
            usage = chunk.usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if choice.finish_reason:
                reasons.append(choice.finish_reason)
    return text, reasons, usage


def test_answer_has_the_official_shape(chat, model):
    completion = chat()
    assert completion.object == "chat.completion"
    assert completion.id and completion.created > 0
    assert completion.model == model
    (choice,) = completion.choices
    assert choice.index == 0
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    usage = completion.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= 24
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_length_is_kept(chat):
    completion = chat(temperature=0, max_tokens=3)
    assert completion.usage.completion_tokens == 3
    assert completion.choices[0].finish_reason == "length"
    assert text_of(chat(temperature=0, max_tokens=None, max_completion_tokens=3)) == text_of(completion)


def test_stream_says_the_same(chat):
    options = dict(temperature=0.9, seed=7)
    whole = chat(**options)
    text, reasons, usage = joined(chat(stream=True, stream_options={"include_usage": True}, **options))
    assert text == text_of(whole)
    assert reasons == [whole.choices[0].finish_reason]
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_stream_without_usage_has_none(chat):
    _, reasons, usage = joined(chat(stream=True))
    assert len(reasons) == 1 and usage is None


def test_seed_decides(chat):
    texts = [text_of(chat(temperature=1.5, top_p=1, seed=seed)) for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_greedy_needs_no_seed(chat):
    assert text_of(chat(temperature=0)) == text_of(chat(temperature=0))


def test_several_choices(chat):
    completion = chat(n=3, temperature=1.2, seed=5, max_tokens=8)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert 3 <= completion.usage.completion_tokens <= 24
    again = chat(n=3, temperature=1.2, seed=5, max_tokens=8)
    assert [c.message.content for c in again.choices] == [c.message.content for c in completion.choices]


def test_several_choices_stream_apart(chat):
    texts = {0: "", 1: ""}
    for chunk in chat(n=2, temperature=1.2, seed=5, max_tokens=8, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    whole = chat(n=2, temperature=1.2, seed=5, max_tokens=8)
    assert [texts[0], texts[1]] == [choice.message.content for choice in whole.choices]


def test_stop_cuts_before_the_text(chat):
    text = text_of(chat(temperature=0, messages=STORY))
    word = text[len(text) // 2 :][:5]
    before = text[: text.index(word)]
    stopped = chat(temperature=0, messages=STORY, stop=word)
    assert text_of(stopped) == before
    assert stopped.choices[0].finish_reason == "stop"
    streamed, reasons, _ = joined(chat(temperature=0, messages=STORY, stop=["never to be found", word], stream=True))
    assert streamed == before
    assert reasons == ["stop"]


def test_logprobs(chat):
    completion = chat(temperature=0, logprobs=True, top_logprobs=3, max_tokens=8)
    tokens = completion.choices[0].logprobs.content
    assert len(tokens) > 0
    for token in tokens:
        assert token.logprob <= 0
        likeliest = [top.logprob for top in token.top_logprobs]
        assert len(likeliest) == 3 and likeliest == sorted(likeliest, reverse=True)
        # Greedy: what was drawn is the likeliest.
        assert token.logprob == likeliest[0] and token.token == token.top_logprobs[0].token
    said = b"".join(bytes(token.bytes) for token in tokens)
    assert said.decode("utf-8", "replace").startswith(text_of(completion))


def test_logprobs_stream_the_same(chat):
    options = dict(temperature=0, logprobs=True, top_logprobs=2, max_tokens=8)
    whole = [(t.token, t.logprob) for t in chat(**options).choices[0].logprobs.content]
    streamed = []
    for chunk in chat(stream=True, **options):
        for choice in chunk.choices:
            if choice.logprobs:
                streamed += [(t.token, t.logprob) for t in choice.logprobs.content]
    assert streamed == whole


def test_logit_bias_forces_a_token(chat):
    completion = chat(temperature=0, logit_bias={"500": 100}, logprobs=True, max_tokens=4)
    tokens = {token.token for token in completion.choices[0].logprobs.content}
    assert len(tokens) == 1
    other = chat(temperature=0, logit_bias={"501": 100}, logprobs=True, max_tokens=4)
    assert tokens.isdisjoint(token.token for token in other.choices[0].logprobs.content)


def test_a_conversation_reuses_what_was_computed(chat):
    turn = [{"role": "user", "content": "The esker lies where the stream left its sand and gravel. " * 12}]
    first = chat(messages=turn, temperature=0, max_tokens=16)
    longer = [*turn, {"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "And then?"}]
    second = chat(messages=longer, temperature=0, max_tokens=16)
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= first.usage.prompt_tokens // 2
    assert cached < second.usage.prompt_tokens
    # Reuse changes no bit of the result.
    third = chat(messages=longer, temperature=0, max_tokens=16)
    assert text_of(third) == text_of(second)


def test_requests_at_once_do_not_mix(chat):
    prompts = [f"Number {i}. " * (1 + 3 * i) for i in range(6)]

    def ask(prompt):
        return text_of(chat(messages=[{"role": "user", "content": prompt}], temperature=0, max_tokens=16))

    alone = [ask(prompt) for prompt in prompts]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(ask, prompts)) == alone


def test_a_client_that_goes_frees_its_slot(chat, all_idle):
    stream = chat(stream=True, max_tokens=900, temperature=1.5, logit_bias={})
    next(iter(stream))
    stream.close()
    all_idle()


def test_text_parts_are_text(chat):
    parts = [{"role": "user", "content": [{"type": "text", "text": HELLO[0]["content"]}]}]
    assert text_of(chat(messages=parts, temperature=0)) == text_of(chat(temperature=0))

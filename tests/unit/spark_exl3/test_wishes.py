"""Bodies of requests."""

import pytest

from spark_exl3.wishes import Asked, Refused, Sampling, asked, messages, template_words, text_prompt


def test_a_bare_request_gets_openai_s_defaults():
    assert asked({"model": "demo"}, "demo") == Asked(Sampling(), None, (), False, False)


def test_all_that_is_asked_for_is_read():
    body = {
        "temperature": 0,
        "top_p": 0.9,
        "top_k": -1,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": -0.2,
        "seed": 7,
        "max_tokens": 5,
        "max_completion_tokens": 6,
        "stop": "END",
        "stream": True,
        "stream_options": {"include_usage": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
    }
    sampling = Sampling(0.0, 0.9, 0, 0.05, 1.1, 0.2, -0.2, 7, {"type": "array"})
    assert asked(body, "demo") == Asked(sampling, 6, ("END",), True, True)


@pytest.mark.parametrize(
    ("body", "status", "parameter", "told"),
    [
        ({"model": "gpt"}, 404, "model", "there is no model 'gpt' here, only 'demo'"),
        ({"n": 2}, 400, "n", "this server does not do n=2"),
        ({"tools": [{"type": "function"}]}, 400, "tools", "this server does not do tools=[{'type': 'function'}]"),
        ({"logprobs": True}, 400, "logprobs", "this server does not do logprobs=True"),
        ({"temperature": 3}, 400, "temperature", "temperature must be from 0 to 2, and is 3"),
        ({"temperature": True}, 400, "temperature", "temperature must be a number"),
        ({"top_p": float("nan")}, 400, "top_p", "top_p must be a number"),
        ({"max_tokens": 0}, 400, "max_tokens", "max_tokens must be a whole number of at least 1, and is 0"),
        ({"seed": "x"}, 400, "seed", "seed must be a whole number of at least -9223372036854775808, and is 'x'"),
        ({"stop": [""]}, 400, "stop", "stop must be a text or a list of texts"),
        (
            {"response_format": {"type": "json_schema"}},
            400,
            "response_format",
            "response_format must be text, json_object, or json_schema with a schema",
        ),
    ],
)
def test_what_this_server_cannot_do_is_refused_by_name(body, status, parameter, told):
    with pytest.raises(Refused) as caught:
        asked(body, "demo")
    assert (caught.value.status, caught.value.parameter, caught.value.message) == (status, parameter, told)


def test_parts_of_a_message_are_one_text_and_a_developer_speaks_as_the_system():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given = {"messages": [{"role": "developer", "content": "Be short."}, {"role": "user", "content": parts}]}
    assert messages(given) == [{"role": "system", "content": "Be short."}, {"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "messages must be a list with at least one message"),
        (["hi"], "messages[0] must have a role: system, developer, user, assistant"),
        ([{"role": "tool", "content": "1"}], "messages[0] must have a role: system, developer, user, assistant"),
        ([{"role": "user"}], "messages[0] must have a text as its content"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            "messages[0] has a part that is no text, and this server reads nothing else",
        ),
    ],
)
def test_messages_that_are_none_are_told_by_their_place(given, told):
    with pytest.raises(Refused) as caught:
        messages({"messages": given})
    assert caught.value.message == told


def test_thinking_is_off_unless_asked_for_under_either_name():
    off, on = ({"enable_thinking": is_on, "thinking": is_on} for is_on in (False, True))
    assert template_words({}) == off
    assert template_words({"chat_template_kwargs": {"thinking": True}}) == on
    assert template_words({"chat_template_kwargs": {"enable_thinking": True, "depth": 2}}) == on | {"depth": 2}
    with pytest.raises(Refused, match="say different things"):
        template_words({"chat_template_kwargs": {"thinking": True, "enable_thinking": False}})


def test_one_text_may_stand_in_a_list_and_several_may_not():
    assert (text_prompt({"prompt": "a"}), text_prompt({"prompt": ["a"]})) == ("a", "a")
    for wrong in (["a", "b"], None, [1, 2]):
        with pytest.raises(Refused, match="prompt must be one text"):
            text_prompt({"prompt": wrong})

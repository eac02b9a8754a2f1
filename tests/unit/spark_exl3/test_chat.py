"""Templates, and thoughts that are told apart from answers."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_exl3.chat import Split, opens_thought, template
from spark_exl3.wishes import Refused

TALK = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "17*19?"},
    {"role": "assistant", "content": "323"},
    {"role": "user", "content": "And\n18*19?\n"},
]


def test_a_pack_without_a_template_gets_deepseek_s_form(tmp_path):
    ours = template(tmp_path)
    said = (
        "<｜begin▁of▁sentence｜><｜System｜>Be short.<｜User｜>17*19?<｜Assistant｜></think>323<｜end▁of▁sentence｜>"
        "<｜User｜>And\n18*19?\n<｜Assistant｜>"
    )
    assert ours.source == "spark_exl3/deepseek_v41.jinja"
    assert ours.render(TALK, {"enable_thinking": False}) == f"{said}</think>"
    assert ours.render(TALK, {"enable_thinking": True}) == f"{said}<think>"


def test_the_pack_s_own_template_comes_first_and_a_named_one_before_it(tmp_path):
    config = {"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert template(tmp_path).render(TALK, {}) == "config <s>"
    (tmp_path / "chat_template.jinja").write_text("file {{ messages|length }}")
    assert template(tmp_path).render(TALK, {}) == "file 4"
    (tmp_path / "mine").write_text("mine")
    assert template(tmp_path, tmp_path / "mine").render(TALK, {}) == "mine"
    with pytest.raises(FileNotFoundError):
        template(tmp_path, Path("/nowhere"))


def test_of_several_templates_the_default_one_is_taken(tmp_path):
    several = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    assert template(tmp_path).render(TALK, {}) == "plain"


@pytest.mark.parametrize("text", ["{{ raise_exception('no') }}", "{{ 1 // 'a' }}", "{{ messages.append(1) }}"])
def test_what_a_template_refuses_is_the_request_s_fault(tmp_path, text):
    (tmp_path / "chat_template.jinja").write_text(text)
    with pytest.raises(Refused) as caught:
        template(tmp_path).render(TALK, {})
    assert (caught.value.status, caught.value.parameter) == (400, "messages")


def test_a_prompt_that_ends_in_an_open_thought_is_one():
    assert opens_thought("<｜Assistant｜><think>\n")
    assert not opens_thought("<｜Assistant｜></think>")


@given(st.text("<think/>ab\n", max_size=30), st.text("ab<t", max_size=20), st.lists(st.integers(0, 60)))
def test_thought_and_answer_are_the_same_however_the_pieces_are_cut(thought, answer, cuts):
    thought = thought.replace("</think>", "")
    whole = f"{thought}</think>{answer}"
    expected = whole.partition("</think>")[::2]
    split, places = Split(True), sorted({min(one, len(whole)) for one in cuts} | {0, len(whole)})
    told = [split.take(whole[begin:end]) for begin, end in pairwise(places)]
    assert ("".join(one[0] for one in told) + split.end(), "".join(one[1] for one in told)) == expected


def test_without_thinking_all_is_answer_and_an_unended_thought_stays_one():
    assert Split(False).take("a</think>") == ("", "a</think>")
    split = Split(True)
    assert (split.take("hm</thi"), split.end()) == (("hm", ""), "</thi")

"""Makes the tokens and masks that Hugging Face's transformers makes of conversations.

Writes to tests/golden/chat/: for each family of models a folder FAMILY with a tokenizer.json, a tokenizer_config.json and a
chat_template.jinja, as `ztoolkit tokenize --chat --model` takes it, and masks.json: for each family and conversation the ids and
the mask of the assistant's tokens by apply_chat_template.

transformers defines a mask only for templates with {% generation %} blocks. So each family is asked with such a template. A
family without blocks in its own template has the blocks around each answer and its end token, and writes the same text.

The ids of transformers are those of the whole text, ours of its parts: they are cut where answers begin and end. They can differ
only where a token of the whole text would hold a part of an answer and of its prompt. The conversations here have no such token:
an answer begins with a letter or digit after a line end, or after "]" with the space that its first word has in any case.

Needs transformers, in the .venv-huggingface of scripts/setup.sh --oracle."""

import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import tokenizers
import transformers

import golden

FOLDER = golden.FOLDER / "chat"
TOKENIZERS = golden.FOLDER / "tokenizers"

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{{- BEGIN }}{{- message.content + '<|im_end|>' }}{{- END }}
{%- else %}
{{- message.content + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA3 = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
{%- if message.role == 'assistant' %}
{{- BEGIN }}{{- message.content | trim + '<|eot_id|>' }}{{- END }}
{%- else %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# The system message goes before the first message, and the assistant is called model.
GEMMA = """\
{{- bos_token }}
{%- if messages and messages[0].role == 'system' %}
{%- set prefix = messages[0].content + '\\n\\n' %}
{%- set turns = messages[1:] %}
{%- else %}
{%- set prefix = '' %}
{%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Roles must alternate user/assistant') }}
{%- endif %}
{%- if message.role == 'assistant' %}
{{- '<start_of_turn>model\\n' }}
{{- BEGIN }}{{- message.content | trim + '<end_of_turn>' }}{{- END }}
{%- else %}
{{- '<start_of_turn>user\\n' + (prefix if loop.first else '') + message.content | trim + '<end_of_turn>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

# There is no prompt of an answer but [/INST], and the tokenizer puts a space before each text.
MISTRAL = """\
{{- bos_token }}
{%- if messages and messages[0].role == 'system' %}
{%- set prefix = messages[0].content + '\\n\\n' %}
{%- set turns = messages[1:] %}
{%- else %}
{%- set prefix = '' %}
{%- set turns = messages %}
{%- endif %}
{%- for message in turns %}
{%- if message.role == 'user' %}
{{- '[INST] ' + (prefix if loop.first else '') + message.content + '[/INST]' }}
{%- else %}
{{- BEGIN }}{{- ' ' + message.content | trim + eos_token }}{{- END }}
{%- endif %}
{%- endfor %}
"""

# By family: the tokenizer, its further special tokens, its named tokens, the template, and whether its own template has blocks.
FAMILIES = {
    "chatml": ("qwen2", ["<|im_start|>", "<|im_end|>"], {"eos_token": "<|im_end|>"}, CHATML, False),
    "chatml_blocks": ("qwen2", ["<|im_start|>", "<|im_end|>"], {"eos_token": "<|im_end|>"}, CHATML, True),
    "llama3": ("llama3", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
               {"bos_token": "<s>", "eos_token": "<|eot_id|>"}, LLAMA3, False),
    "gemma": ("qwen2", ["<start_of_turn>", "<end_of_turn>"], {"bos_token": "<s>", "eos_token": "<end_of_turn>"}, GEMMA, False),
    "mistral": ("llama2", [], {"bos_token": "<s>", "eos_token": "</s>"}, MISTRAL, False),
}

CONVERSATIONS = {
    "short": [("user", "What is 2 + 2?"), ("assistant", "4, of course.")],
    "multi": [("user", "Hello there!"), ("assistant", "Hello."), ("user", "Name three colours."),
              ("assistant", "Red, green\nand blue."), ("user", "Thanks"), ("assistant", "You are welcome!")],
    "system": [("system", "You are brief."), ("user", "Who are you?"), ("assistant", "A model."), ("user", "And how old?"),
               ("assistant", "I do not know.")],
    "empty_system": [("system", ""), ("user", "Hi"), ("assistant", "Hi!")],
    "unicode": [("user", "Grüße, 世界! \U0001f44b"), ("assistant", "Schöne Grüße: 你好 \U0001f600 e\u0301"),
                ("user", "\u0628\u0644\u062f?"), ("assistant", "N\u00e3o \U0001f1e7\U0001f1f7.")],
}


def blocks(template, has_blocks):
    begin, end = ("{%- generation %}", "{%- endgeneration %}") if has_blocks else ("", "")
    return template.replace("{{- BEGIN }}", begin).replace("{{- END }}", end)


def make_family(family):
    """Writes the folder. Returns transformers' tokenizer with a template that has blocks."""
    source, special, named, template, has_blocks = FAMILIES[family]
    folder = FOLDER / family
    folder.mkdir(parents=True, exist_ok=True)
    fast = tokenizers.Tokenizer.from_file(str(TOKENIZERS / f"{source}.json"))
    fast.add_special_tokens(special)
    (folder / "tokenizer.json").write_text(fast.to_str() + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(named) + "\n")
    (folder / "chat_template.jinja").write_text(blocks(template, has_blocks))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **named)
    tokenizer.chat_template = blocks(template, True)
    return tokenizer


def make_case(tokenizer, family, name):
    messages = [{"role": role, "content": content} for role, content in CONVERSATIONS[name]]
    made = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    own = tokenizer.apply_chat_template(messages, chat_template=blocks(FAMILIES[family][3], False), tokenize=False)
    assert own == tokenizer.apply_chat_template(messages, tokenize=False), f"{family}: the blocks change the text"
    assert sum(made["assistant_masks"]) > 0, (family, name)
    return {"family": family, "conversation": name, "messages": messages, "ids": made["input_ids"],
            "mask": made["assistant_masks"]}


if __name__ == "__main__":
    cases = []
    for family in FAMILIES:
        tokenizer = make_family(family)
        cases += [make_case(tokenizer, family, name) for name in CONVERSATIONS]
    text = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    (FOLDER / "masks.json").write_text(f"[{text}]\n")
    print(f"{len(cases)} conversations of {len(FAMILIES)} families, by transformers {transformers.__version__}")

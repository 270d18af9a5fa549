"""Renders chat templates by Hugging Face's transformers.

Reads templates from tests/golden/templates/: NAME.jinja, in the style of a family of models, and expressions.txt and
statements.txt, short ones for single constructs. Writes models.json, constructs.json and random.json there: what transformers
renders, or "error".

    make_templates.py                                     writes the golden files
    make_templates.py --live PROGRAM --first 0 --count N  compares N random templates with what a program renders. It reads a line
                                                          of JSON per template and writes one, as render_lines.cpp does, which is
                                                          in tests/data/template/

Needs transformers and jinja2, in a virtual environment of its own (scripts/setup.sh --oracle makes it)."""

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import subprocess

os.environ["HF_HUB_OFFLINE"] = "1"
import transformers.utils.logging
from transformers.utils import chat_template_utils

from text import template_grammar

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "golden" / "templates"
NOW = 1753963200  # the time that strftime_now prints, in UTC
RANDOM_CASES = 400
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")  # the text of a generator or function: ours refuses to print it


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def byte_ranges(text, ranges):
    """Converts ranges of characters to ranges of bytes: in order, without empty ones, and those that touch merged."""
    result = []
    for begin, end in sorted(ranges):
        begin, end = (len(text[:at].encode()) for at in (begin, end))
        if begin == end:
            continue
        if result and result[-1][1] >= begin:
            result[-1][1] = max(end, result[-1][1])
        else:
            result.append([begin, end])
    return result


def render(template, messages, variables, prompt):
    """Returns {"output", "answers"}, or {"error"} with the text of the exception. As apply_chat_template, leaves out what is null
    in messages."""
    try:
        messages = [{key: value for key, value in message.items() if value is not None} for message in messages]
        texts, ranges = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, return_assistant_tokens_mask=True, add_generation_prompt=prompt, **variables)
        texts[0].encode()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"output": texts[0], "answers": byte_ranges(texts[0], ranges[0])}


def run_case(template, name, conversation, prompt):
    result = render(template, conversation["messages"], conversation["variables"], prompt)
    assert not ADDRESS.search(result.get("output", "")), f"{name} prints an address: {template}"
    return result


def read_conversations():
    return json.loads((FOLDER / "conversations.json").read_text())


def make_models(conversations):
    templates = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}
    cases = []
    for name, template in templates.items():
        for chat, conversation in conversations.items():
            for prompt in (False, True):
                case = {"template": name, "conversation": chat, "prompt": prompt}
                cases.append(case | run_case(template, name, conversation, prompt))
    return {"templates": templates, "conversations": conversations, "cases": cases}


def read_constructs():
    lines = (FOLDER / "expressions.txt").read_text().split("\n")
    expressions = [line for line in lines if line and not line.startswith("# ")]
    statements = (FOLDER / "statements.txt").read_text().removesuffix("\n").split("\n====\n")
    return ["{{ " + expression + " }}" for expression in expressions] + statements


def make_list(templates, conversation):
    cases = [{"template": template} | run_case(template, "a template", conversation, True) for template in templates]
    return {"conversation": conversation, "prompt": True, "cases": cases}


def random_template(seed):
    return template_grammar.Grammar(random.Random(seed)).template()


def random_templates(first, count, conversation):
    """Returns templates that print no address."""
    templates, seed = [], first
    while len(templates) < count:
        template = random_template(seed)
        if not ADDRESS.search(render(template, conversation["messages"], conversation["variables"], True).get("output", "")):
            templates.append(template)
        seed += 1
    return templates


def write(name, data):
    cases = data["cases"]
    errors = sum("error" in case for case in cases)
    for case in cases:
        if "error" in case:
            case["error"] = case["error"][:80]
    (FOLDER / f"{name}.json").write_text(json.dumps(data, indent=None, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{name}: {len(cases)} cases, {errors} of them errors")


def compare_live(program, first, count, conversation):
    """Prints each template whose result differs."""
    templates = [random_template(seed) for seed in range(first, first + count)]
    lines = [json.dumps(conversation | {"template": template, "add_generation_prompt": True}) for template in templates]
    answers = subprocess.run([program], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout
    differing = errors = refused = 0
    for seed, template, answer in zip(range(first, first + count), templates, answers.splitlines(), strict=True):
        ours = json.loads(answer)
        theirs = render(template, conversation["messages"], conversation["variables"], True)
        is_refused = ADDRESS.search(theirs.get("output", "")) is not None or "64 bits" in ours.get("error", "")
        refused += is_refused
        errors += "error" in theirs
        # Their answers are wrong where a set block, filter block or macro captures a generation block: the golden files have few.
        is_equal = "error" in ours if is_refused or "error" in theirs else ours.get("output") == theirs["output"]
        if not is_equal:
            differing += 1
            print(f"seed {seed}: {template!r}\n  transformers: {theirs}\n  ours:         {ours}")
    print(f"{count} templates: {differing} differ, {errors} are errors, {refused} print an address or have larger integers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    chat_template_utils.datetime = FixedClock
    chats = read_conversations()
    if options.live:
        compare_live(options.live, options.first, options.count, chats["values"])
    else:
        values = chats.pop("values")
        write("models", make_models(chats))
        write("constructs", make_list(read_constructs(), values))
        write("random", make_list(random_templates(0, RANDOM_CASES, values), values))

"""Checks that the sides of infer_vs.py generate the same tokens in fp32."""

import functools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import needs

needs.packages("numpy", "torch", environment=".venv-peers", starter="infer/infer_vs.py")

import torch

# Two logits are equal up to rounding if they differ by less than so many standard deviations of all logits.
ROUNDING = 1e-4
# llama.cpp looks GELU up in a table of fp16 values, also in fp32. The logits of gpt_27m are then wrong by up to 2e-3.
GELU_ROUNDING = 5e-3


@functools.cache
def logits_gap(folder, prompt, first, second):
    """Returns the distance of the logits of two tokens after `prompt`, in standard deviations of all logits, and the places of
    both in the order of all logits. Loads the model in fp32 for that, once per question: repetitions ask again."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([list(prompt)])).logits[0, -1].double()
    places = [int((logits > logits[token]).sum()) for token in (first, second)]
    return float((logits[first] - logits[second]).abs() / logits.std()), places


def rounding_of(name, folder):
    """Returns the distance up to which the logits of a side count as equal."""
    kind = json.loads((pathlib.Path(folder) / "config.json").read_text())["model_type"]
    return GELU_ROUNDING if (name, kind) == ("llama_cpp", "gpt2") else ROUNDING


def require_equal(row, prompt, answers, folder):
    """Compares the answers of all sides with those of the first side. Exits if tokens differ and their logits do too."""
    (own, reference), *others = answers.items()
    for name, answer in others:
        if answer == reference:
            continue
        place = next(place for place, pair in enumerate(zip(reference, answer)) if pair[0] != pair[1])
        gap, places = logits_gap(folder, tuple(prompt + reference[:place]), reference[place], answer[place])
        text = (f"{row}: after {place} equal tokens {own} has {reference[place]} and {name} has {answer[place]}: their logits "
                f"have the places {places} and differ by {gap:.1e} standard deviations")
        if gap > rounding_of(name, folder):
            sys.exit(f"infer_vs: {text}. That is more than rounding: one side computes another model")
        print(f"{text}, which is rounding", flush=True)

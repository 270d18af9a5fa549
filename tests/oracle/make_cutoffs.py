"""Makes rows of logits with options of sampling, and the tokens that transformers' processors of logits leave of them, in fp64.

    make_cutoffs.py                       writes tests/golden/cutoffs.json
    make_cutoffs.py --live COUNT BINARY   compares COUNT other rows with cutoff_lines, which is BINARY

Needs numpy, torch and transformers (the .venv-huggingface of scripts/setup.sh --oracle)."""

import json
import subprocess
import sys

import numpy
import torch
from transformers.generation import logits_process

import golden

COUNT, VOCABULARY = 200, 40


def random_case(random, vocabulary):
    """Without equal logits beside top_p, where the order of equal ones decides."""
    count = int(random.integers(2, vocabulary))
    logits = numpy.round(random.normal(0, 3, count), 5)
    top_p = float(random.uniform(0.01, 1)) if random.random() < 0.5 else 1.0
    if top_p == 1.0 and random.random() < 0.3:
        logits = numpy.round(logits)
    prompt = random.integers(0, count, 5) if random.random() < 0.3 else []
    return {"logits": [float(logit) for logit in logits], "prompt": [int(token) for token in prompt],
            "repetition_penalty": float(random.uniform(0.5, 2)) if len(prompt) else 1.0,
            "temperature": float(random.uniform(0.2, 2)),
            "top_k": int(random.integers(1, count + 5)) if random.random() < 0.5 else 0, "top_p": top_p,
            "min_p": float(random.uniform(0, 0.3)) if random.random() < 0.5 else 0.0}


def kept_by_transformers(case):
    """The tokens that remain after the processors in the order in which `generate` calls them."""
    scores, prompt = torch.tensor([case["logits"]], dtype=torch.float64), torch.tensor([case["prompt"]], dtype=torch.long)
    steps = [logits_process.TemperatureLogitsWarper(case["temperature"])]
    if case["prompt"]:
        steps.insert(0, logits_process.RepetitionPenaltyLogitsProcessor(case["repetition_penalty"]))
    if case["top_k"]:
        steps.append(logits_process.TopKLogitsWarper(case["top_k"]))
    if case["top_p"] < 1:
        steps.append(logits_process.TopPLogitsWarper(case["top_p"]))
    if case["min_p"]:
        steps.append(logits_process.MinPLogitsWarper(case["min_p"]))
    for step in steps:
        scores = step(prompt, scores)
    return torch.isfinite(scores[0]).nonzero()[:, 0].tolist()


def compare(count, binary):
    random = numpy.random.default_rng(2)
    cases = [random_case(random, 3000 if number % 10 == 0 else 200) for number in range(count)]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    printed = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    different = [number for number, (case, line) in enumerate(zip(cases, printed, strict=True))
                 if json.loads(line) != kept_by_transformers(case)]
    print(f"{count - len(different)} of {count} kept sets are equal")
    for number in different[:5]:
        print(json.dumps(cases[number]), "here:", printed[number], "transformers:", kept_by_transformers(cases[number]))
    sys.exit(1 if different else 0)


def main():
    if sys.argv[1:2] == ["--live"]:
        compare(int(sys.argv[2]), sys.argv[3])
    random = numpy.random.default_rng(1)
    cases = [random_case(random, VOCABULARY) for _ in range(COUNT)]
    text = ",\n".join(json.dumps(case | {"kept": kept_by_transformers(case)}) for case in cases)
    (golden.FOLDER / "cutoffs.json").write_text(f"[{text}]\n")


if __name__ == "__main__":
    main()

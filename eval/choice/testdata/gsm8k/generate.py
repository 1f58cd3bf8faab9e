"""Writes train.jsonl, test.jsonl and golden.json: what lm-evaluation-harness (0.4.13) asks and how it scores on questions that
this script makes up in the form of GSM8K's rows (openai/gsm8k, main: question, answer with <<a*b=c>> and a last line "#### N").
No row is GSM8K's own. Run: pip install lm_eval==0.4.13; python generate.py
"""

import json
import os
import tempfile

import lm_eval
import yaml
from lm_eval.api.model import LM
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.utils import postprocess_generated_text

NAMES = ["Ana", "Bo", "Cem", "Dora", "Egon", "Fay", "Gus", "Hana"]
THINGS = ["stones", "ribbons", "pears", "stamps", "shells", "lamps", "maps"]


def row(i):
    a, b, c = 2 + i % 7, 3 + i * 5 % 11, i % 4
    who, what = NAMES[i % len(NAMES)], THINGS[i * 3 % len(THINGS)]
    q = f"{who} fills {a} bags with {b} {what} each and loses {c}. How many {what} are left?"
    return {"question": q, "answer": f"The bags hold {a}*{b}=<<{a}*{b}={a * b}>>{a * b} {what}.\nSo {a * b}-{c}=<<{a * b}-{c}={a * b - c}>>{a * b - c} are left.\n#### {a * b - c}"}


# What a model might say of a test row; N stands for the right number.
REPLIES = [
    " There are N.\n#### N", " #### N.", " #### $N", " The answer is N", " N", " I do not know.", "", " #### N\n\nQuestion: Bo has 7 maps.\n#### 9",
    " N or 12", " #### -N", " #### 1N,000", " #### 1,N.", " #### N.00", "#### N", " ####N", " 12 #### 3 #### N", " #### N #### 3", " It is $N.",
    " It is N. ...", " It costs - N", " **N**</s> #### 4", " #### N<|im_end|>7", " #### \u0663", " twelve (N)!", " -", " N,\n",
]


class Said(LM):
    def __init__(self):
        super().__init__()
        self.prompts, self.replies = [], []

    def generate_until(self, requests, **_):
        for r in requests:
            ctx, kwargs = r.args
            assert kwargs["until"] == ["Question:", "</s>", "<|im_end|>"] and not kwargs["do_sample"], kwargs
            self.prompts.append(ctx)
            raw = REPLIES[r.doc_id].replace("N", number(r.doc_id))
            self.replies.append((raw, postprocess_generated_text(raw, kwargs["until"], None)))
        return [cut for _, cut in self.replies]

    def loglikelihood(self, requests, **_):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def write(name, rows):
    with open(name, "w") as f:
        f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


def number(i):
    return row(100 + i)["answer"].split("#### ")[-1]


train = [row(i) for i in range(26)]
test = [row(100 + i) for i in range(len(REPLIES))]
test[10]["answer"] = test[10]["answer"].replace("#### ", "#### 1,") + ",000"
test[1]["answer"] += "."
test[25]["answer"] += ".\n"
write("train.jsonl", train)
write("test.jsonl", test)
cases, tmp = [], tempfile.mkdtemp()
for rows, shots in [(26, None), (12, None), (26, 8), (26, 0)]:
    write(os.path.join(tmp, "train.jsonl"), train[:rows])
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(os.path.dirname(lm_eval.__file__), "tasks", "gsm8k", "gsm8k.yaml")) as f:
        config = yaml.safe_load(f)
    config |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"train": os.path.join(tmp, "train.jsonl"), "test": here + "/test.jsonl"}}}
    said = Said()
    out = lm_eval.simple_evaluate(model=said, tasks=[ConfigurableTask(config=config)], num_fewshot=shots, bootstrap_iters=0, log_samples=True)
    case = {"train": rows, "shots": -1 if shots is None else shots, "prompts": said.prompts[:3]}
    if not cases:
        got = {(s["doc_id"], s["filter"]): s for s in out["samples"]["gsm8k"]}
        case["rows"] = []
        for i, (raw, cut) in enumerate(said.replies):
            strict, flexible = got[i, "strict-match"], got[i, "flexible-extract"]
            case["rows"].append({"reply": raw, "cut": cut, "strict": float(strict["exact_match"]), "strict_text": strict["filtered_resps"][0],
                                 "flexible": float(flexible["exact_match"]), "flexible_text": flexible["filtered_resps"][0]})
        case["results"] = {k: v for k, v in out["results"]["gsm8k"].items() if k.startswith("exact_match,")}
    cases.append(case)
with open("golden.json", "w") as f:
    json.dump(cases, f, indent=1, ensure_ascii=False)
    f.write("\n")

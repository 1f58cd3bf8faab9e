"""Writes squad.json and hotpotqa.json, made-up rows in the forms of SQuAD 2.0 and HotpotQA (distractor), and golden.json: what
NVIDIA/RULER's scripts/data/synthetic/qa.py (Apache-2.0) reads from them and asks. No row is of those data sets.
Run: python generate.py RULER/scripts/data/synthetic
"""

import ast
import json
import os
import random
import sys
import types

ruler = sys.argv[1]
towns = ["Adel", "Brisk", "Corto", "Dunmar", "Elk Ford", "Fenn", "Gorse", "Hale"]


def paragraph(town, i):
    return f"{town} {['has a mill', 'lies on a hill', 'was burnt', 'has é bridges'][i]} since {1500 + 7 * i + len(town)}. It is known for that."


squad = {"version": "made up", "data": []}
for t, town in enumerate(towns):
    paragraphs = []
    for i in range(2 + t % 3):
        year = str(1500 + 7 * i + len(town))
        qas = [{"question": f"Since when, {town} {i}?", "id": f"{t}-{i}", "is_impossible": False, "answers": [{"text": year, "answer_start": 0}, {"text": "since " + year, "answer_start": 0}]}]
        if i == 1:
            qas.append({"question": "Why?", "id": f"{t}-{i}x", "is_impossible": True, "answers": []})
        paragraphs.append({"context": paragraph(town, i), "qas": qas})
    squad["data"].append({"title": town, "paragraphs": paragraphs})
hotpot = []
for t, town in enumerate(towns):
    near = [towns[(t + k) % len(towns)] for k in range(3)]
    hotpot.append({"_id": str(t), "question": f"Which is older, {near[0]} or {near[1]}?", "answer": near[t % 2], "type": "comparison", "level": "hard", "supporting_facts": [],
                   "context": [[n, [f"{n} is a town.", f" It has {len(n)} gates."]] for n in near]})
for name, data in (("squad", squad), ("hotpotqa", hotpot)):
    with open(name + ".json", "w") as f:
        json.dump(data, f, ensure_ascii=False, indent=0)
        f.write("\n")

with open(os.path.join(ruler, "qa.py")) as f:
    tree = ast.parse(f.read())
wanted = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in ("read_squad", "read_hotpotqa", "generate_input_output")]
space = {"json": json, "random": random, "DOCUMENT_PROMPT": "Document {i}:\n{document}"}
exec(compile(ast.Module(wanted, []), "qa.py", "exec"), space)
constants = {}
with open(os.path.join(ruler, "constants.py")) as f:
    exec(f.read(), constants)
task = constants["TASKS"]["qa"]
golden = {"tokens": task["tokens_to_generate"], "prefix": task["answer_prefix"]}
for name, read in (("squad", "read_squad"), ("hotpotqa", "read_hotpotqa")):
    qas, docs = space[read](name + ".json")
    space |= {"QAS": qas, "DOCS": docs, "args": types.SimpleNamespace(random_seed=42, template=task["template"])}
    rows = []
    for i in range(3):
        texts = {str(n): space["generate_input_output"](i, n)[0] for n in (len(qas[i]["context"]), len(qas[i]["context"] + qas[i].get("more_context", [])), len(docs), len(docs) + 3)}
        rows.append(texts)
    golden[name] = {"docs": docs, "qas": qas, "inputs": rows}
with open("golden.json", "w") as f:
    json.dump(golden, f, ensure_ascii=False, indent=0)
    f.write("\n")

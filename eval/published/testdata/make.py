"""Makes prompts.json: rows as three benchmarks publish them, with the prompt, the answer's labels and its length of the official code.

usage: python make.py INFINITEBENCH LOOGLE LONGBENCH   (checkouts of OpenBMB/InfiniteBench, bigai-nlco/LooGLE and THUDM/LongBench, at 88b3daa,
6734382 and 2e00731). Rows are made up; packages that eval_utils.py imports for scores are stood in for.
"""
import json, os, sys, types
for name in ("rouge", "jieba"):
    sys.modules[name] = types.SimpleNamespace(Rouge=None)
INFINITE, LOOGLE, LONG = sys.argv[1:4]
sys.path.insert(0, INFINITE + "/src")
import eval_utils as e
out = []
ctx = "One {input} two\n{context} $Q$ 'three'."
rows = {
    "passkey": dict(input="What is the pass key?", answer=["71432"]),
    "number_string": dict(input="What is the sequence?", answer=["3000"]),
    "kv_retrieval": dict(input="Key: \"a\"", answer="5e6b"),
    "longbook_sum_eng": dict(input="", answer=["A book."]),
    "longbook_choice_eng": dict(input="Who?", options=["Ann", "Bob", "Cy", "{A}"], answer=["Cy"]),
    "longbook_qa_eng": dict(input="Who?", answer=["Ann", "the Ann"]),
    "longbook_qa_chn": dict(input="谁？", answer=["商老太"]),
    "longdialogue_qa_eng": dict(input="", answer=["ACE", "ACE R"]),
    "math_find": dict(input="You should answer with only one number. The largest number of the list is:", answer=88),
    "math_calc": dict(input="", answer=[1, 3, 11]),
    "code_run": dict(input="Please give me the exact number of the return value of func_12(-7).", answer=-7),
    "code_debug": dict(input="", options=["f", "g.h", "i", "j"], answer=["g.h", "B"]),
}
for task, row in rows.items():
    row = dict(id=0, context=ctx, **{"options": [], **row})
    label = e.get_answer(row, task)
    out.append(dict(suite="infinitebench", task=task, row=row, prompt=e.create_prompt(dict(row), task, "yarn-mistral", "."), label=label if isinstance(label, list) else [label], tokens=e.DATA_NAME_TO_MAX_NEW_TOKENS[task]))
prompts, lengths = (json.load(open(f"{LOOGLE}/config/task2{x}.json")) for x in ("prompt", "maxlen"))
for task, pairs in {"shortdep_qa": [{"Q": "Where's he?", "A": "In \"Jerez\".", "S": ["a", "b"]}, {"Q": "Who?", "A": "He\nwas.", "S": []}],
                    "longdep_qa": [{"Q": "How many?\n1. one", "A": "3", "type": "computation", "S": ["x"]}],
                    "shortdep_cloze": [{"Q": "By <mask-1> in <mask-0>.", "A": {"<mask-0>": "Paris", "<mask-1>": "Ann's"}}]}.items():
    row = dict(input=ctx, title="t", qa_pairs=str(pairs), output="None")
    for i, p in enumerate(pairs):
        out.append(dict(suite="loogle", task=task, row=row, at=i, prompt=prompts[task].format(Q=p["Q"], input=ctx), label=[p["A"]], tokens=lengths[task]))
row = dict(input=ctx, title="t", qa_pairs="none", output="A summary.")
out.append(dict(suite="loogle", task="longdep_summarization", row=row, prompt=prompts["longdep_summarization"].format(input=ctx), label=["A summary."], tokens=lengths["longdep_summarization"]))
row = dict(_id="66f", domain="Single-Document QA", sub_domain="Financial", difficulty="hard", length="short", question=" Which? ", choice_A="a $C_B$", choice_B="b\n", choice_C="c", choice_D=" d", answer="B", context=" " + ctx + "\n")
template = open(f"{LONG}/prompts/0shot.txt", encoding="utf-8").read()
prompt = template.replace('$DOC$', row["context"].strip()).replace('$Q$', row['question'].strip()).replace('$C_A$', row['choice_A'].strip()).replace('$C_B$', row['choice_B'].strip()).replace('$C_C$', row['choice_C'].strip()).replace('$C_D$', row['choice_D'].strip())
out.append(dict(suite="longbench-v2", task="longbench-v2", row=row, prompt=prompt, label=["B"], tokens=128))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "prompts.json"), "w", encoding="utf-8") as f:
    f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in out) + "\n]\n")
print(len(out))

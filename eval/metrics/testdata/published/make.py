"""Makes cases.json: predictions scored by the official code of four benchmarks.

usage: python make.py INFINITEBENCH LOOGLE MATH LONGBENCH   (checkouts of OpenBMB/InfiniteBench, bigai-nlco/LooGLE, hendrycks/math and
THUDM/LongBench, at 88b3daa, 6734382, 985bdc1 and 2e00731; pip install rouge-score==0.1.2 rouge==1.0.1 nltk==3.10.4)

Predictions are drawn (seed 5) from pieces that the scorers look at. Where the official code raises, the score is null. bert_score and
evaluate are stood in for: the one is not called, the other's rouge is rouge_score's RougeScorer without a stemmer, which it wraps.
"""
import io, json, os, random, re, sys, types, warnings
from contextlib import redirect_stdout
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
INFINITE, LOOGLE, MATH, LONG = sys.argv[1:5]
from rouge_score.rouge_scorer import RougeScorer


class Evaluate:
    def compute(self, predictions, references, use_aggregator):
        s = RougeScorer(["rougeLsum"], use_stemmer=False)
        return {"rougeLsum": [(s.score_multi if isinstance(r, list) else s.score)(r, p)["rougeLsum"].fmeasure for p, r in zip(predictions, references)]}


sys.modules["evaluate"] = types.SimpleNamespace(load=lambda name: Evaluate())
sys.modules["bert_score"] = types.SimpleNamespace(score=None)
sys.modules["args"] = types.SimpleNamespace(parse_args=None)
sys.modules["tqdm"] = types.SimpleNamespace(tqdm=lambda x: x)
sys.path[:0] = [INFINITE + "/src", LOOGLE + "/Evaluation", MATH + "/modeling"]
import compute_scores as infinite, automatic_metrics as loogle
from math_equivalence import is_equiv
from dataset.util import last_boxed_only_string
source = open(LONG + "/pred.py", encoding="utf-8").read()
space = {"re": re}
exec(source[source.index("def extract_answer"):source.index("def get_pred")], space)
source = open(MATH + "/modeling/eval_math_gpt.py", encoding="utf-8").read()
exec(source[source.index("def remove_boxed"):source.index("\n\n", source.index("return None", source.index("def remove_boxed")))], space)

r = random.Random(5)
cases = []


def case(kind, pred, answer, score, **more):
    try:
        with redirect_stdout(io.StringIO()):
            value = score()
    except Exception:
        value = None
    cases.append(dict(kind=kind, pred=pred, answer=answer, score=value, **more))


def mixed(pieces, least=0, most=5):
    return "".join(r.choice(pieces) for _ in range(r.randint(least, most)))


glue = [" ", "\n", ". ", ", ", ": ", "?", "'", '"', "  ", "*", "\u3000"]
tasks = {
    "passkey": (["71432", "7", " 71432", "the key is ", "½", "٣"] + glue, [["71432"], "71432", ["7"]]),
    "number_string": (["3000077442", "30", "digits", "x1"] + glue, [["3000077442"]]),
    "kv_retrieval": (["5e6b-90", "value", "{", "}", "5e6b-90x"] + glue, ["5e6b-90"]),
    "code_run": (["4", "-4", "+4", "24", "value is", "4_0", "40", "`", "4.0", "007"] + glue, [[4], 4, [-4], [40], [7]]),
    "code_debug": (["B", "B.", "B:", "A.", "answer is: ", "answer:", " is: ", "correct option is: ", "Option ", "option", "fn.name", "-", "`", "C"] + glue, [["fn.name", "B"], ["A", "C"]]),
    "longdialogue_qa_eng": (["Ace", "ACE", "ace rothstein", "Nick", "é"] + glue, [["ACE", "ACE ROTHSTEIN"], ["É"]]),
    "longbook_qa_eng": (["Mrs. Deandra", "the ", "Peyton", "a", "An", "peyton!", "İ"] + glue, [["\"Mrs. Deandra\""], ["Peyton", "the Peyton man"]]),
    "longbook_qa_chn": (["田立帆", "商", "老太", "，", "。", "A b"] + glue, [["田立帆, 商老太"], ["商"]]),
    "longbook_choice_eng": (["A", "B", "C", "D", "Snowfield", "answer is: ", "answer is", "option is ", "answer:", "AB", "e", "BD"] + glue, [["Snowfield", "C"], ["e", "A"], ["Answer", "B"]]),
    "longbook_sum_eng": (["the cat sat", " on the mat", "\n", "a dog ran. ", "The CAT ", "sat on", "zebra", "\n\n", " 12 "] , [["The cat sat on the mat.\nA dog ran off."], ["a dog\nthe cat sat\non the mat", "zebra ran"], "the mat"]),
    "math_find": (["88", "3.5", "3", " 0.5", ".5", "88.0", "abc", "-"] + glue, [[88], [3.5], 3, [0.5], [88.0]]),
    "math_calc": (["[", "]", "1, ", "3, ", "-1", "11", "007", "3", "x"], [[[1, 3, 11, 7]], [1, 3]]),
}
for task, (pieces, answers) in tasks.items():
    for _ in range(32):
        pred, answer = mixed(pieces), r.choice(answers)
        case("infinitebench", pred, answer, lambda: float(infinite.get_score_one(pred, answer, task, "chatglm3")), task=task)
for _ in range(60):
    pred = mixed(["The correct answer is ", "(A)", "(B", "B", "*", "**", "(E)", "the correct answer is (C)", "D", "\n", " "], 1, 6)
    case("longbench2", pred, "", lambda: space["extract_answer"](pred.strip()) or "")
maths = ["\\frac", "\\frac12", "\\frac{1}{2}", "\\dfrac", "\\tfrac34", "1/2", "-1/2", "0.5", ".5", "1", "2", "x", "x=", "\\sqrt", "\\sqrt3", "\\sqrt{3}", "{", "}", " ", "\\text{ units}",
         "\\%", "\\$", "^\\circ", "^{\\circ}", "\\left(", "\\right)", "\\!", "\\\\", "=", ", ", "3/4", "/", "ab", "é", "10"]
for _ in range(160):
    a = mixed(maths, 1, 4)
    b = r.choice([a, a.replace(" ", ""), a.replace("dfrac", "frac"), a.replace("1/2", "\\frac{1}{2}"), a.replace("\\sqrt3", "\\sqrt{3}"), a.replace("\\frac12", "\\frac{1}{2}"), a.replace(".5", "0.5"), "x=" + a, mixed(maths, 1, 2)])
    case("math", a, b, lambda: is_equiv(a, b))
for _ in range(60):
    s = mixed(["\\boxed{", "\\boxed", "\\fbox{", "{", "}", "}", "12", "\\frac{1}{2}", " ", "so "], 1, 7)

    def boxed():
        got = last_boxed_only_string(s)
        return space["remove_boxed"](got)
    case("boxed", s, "", boxed)
words = ["the", "cat", "sat", "on", "mat", "mat.", "a", "dog", "ran", "...", "of", "it", "end."]
for _ in range(60):
    pred, ref = " ".join(r.choice(words) for _ in range(r.randint(0, 14))), " ".join(r.choice(words) for _ in range(r.randint(1, 14)))

    def text():
        hyp = pred or "None"
        b1, b4 = loogle.get_bleu_score("", ref, hyp, "shortdep_qa")
        r1, r2, rl = loogle.get_rouge_score("", ref, hyp, "shortdep_qa")
        return {"bleu1": float(b1), "bleu4": float(b4), "rouge1": r1, "rouge2": r2, "rougeL": rl}
    case("loogle", pred, ref, text)
masks = ["{'<mask-0>': 'Bob'", "'<mask-0>'", ": ", "'Bob Smith'", "{", "}", ", ", "'<mask-1>': \"Ann's\"", "'<mask-1>': 'Paris' 'x'", "\n", "'<mask-1>': 'Par\\x69s'", " ", "}"]
for _ in range(80):
    pred = r.choice([mixed(masks, 1, 6), "{" + mixed(["'<mask-0>': 'Bob'", "'<mask-0>': 'Smith Bob'", ", ", ", ", "'<mask-1>': 'Paris'", "'<mask-1>': \"Ann's\"", "'<mask-2>': 'x'"], 1, 4) + "}",
                     "{" + ", ".join(r.sample(["'<mask-0>': 'Bob'", "'<mask-0>': 'Smith Bob'", "'<mask-1>': 'Par\\x69s'", "'<mask-1>': \"Ann's\"", "'<mask-2>': 'of Paris'"], 2)) + r.choice(["}", ",}", "} ", "}."])])
    answer = r.choice([{"<mask-0>": "Bob Smith", "<mask-1>": "Paris"}, {"<mask-0>": "Bob", "<mask-1>": "Ann's", "<mask-2>": "Paris"}])

    def cloze():
        exact, n = loogle.get_exact_match("", answer, pred, "shortdep_cloze")
        partial, _ = loogle.get_partial_match("", answer, pred, "shortdep_cloze")
        return {"exact": exact / n, "partial": partial / n}
    case("cloze", pred, answer, cloze)
with open(f"{HERE}/cases.json", "w", encoding="utf-8") as f:
    f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
print(len(cases), sum(c["score"] is None for c in cases), sum(1 for c in cases if c["score"] not in (0, None, False, "")))

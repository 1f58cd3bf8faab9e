// Package choice scores tasks of lm-evaluation-harness as it does: multiple choice, where the answer is the one whose text is the
// most likely continuation of the prompt (acc), or the most likely per character (acc_norm), and GSM8K, whose answer is generated.
//
// It owns the harness's prompts for OpenBookQA, PIQA, COPA, RTE, ARC, HellaSwag, MMLU and GSM8K, the split of context and
// continuation tokens, few-shot examples, and reading the datasets' own JSONL or Parquet files. Examples of MMLU are the first of
// its dev split and examples of GSM8K the harness's own draw from train (Python's random.Random(1234), a sample a question in
// their order), as there; the others are drawn by our own random stream, so they differ from the harness's draw. It never uses
// chat templates, and a prompt that the context does not hold fails where the harness cuts its beginning. Log-likelihoods are nats.
package choice

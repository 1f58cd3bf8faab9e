// Package choice scores multiple-choice questions as lm-evaluation-harness does: the answer whose text is the most likely
// continuation of the prompt (acc), or the most likely per byte (acc_norm).
//
// It owns the harness's prompts for OpenBookQA, PIQA, COPA, RTE, ARC, HellaSwag and MMLU, the split of context and continuation tokens, seeded
// few-shot examples, and reading the datasets' own JSONL or Parquet files. Few-shot examples are drawn by our own random
// stream, so they differ from the harness's draw, but for MMLU, whose examples are the first of its dev split, as there. It never uses chat templates. Log-likelihoods are nats.
package choice

// Package metrics scores predictions exactly as the public benchmarks' own code does, quirks included: LongBench's
// metrics.py and eval.py (with rouge 1.0.1, fuzzywuzzy 0.18.0 over difflib, jieba 0.42.1), RULER's string match,
// and lm-evaluation-harness's exact match of GSM8K.
//
// It owns the formulas and the few Python behaviours they rest on (whitespace, lower case, word boundaries, rounding,
// even the recursion limit that makes very long ROUGE pairs score 0). It never reads files, builds prompts or knows models.
//
// Scores are 0..1, not rounded, except where the original rounds (code similarity: whole percents). Scorer means are
// percent with two decimals, as eval.py prints them. All functions are pure and safe for concurrent use.
package metrics

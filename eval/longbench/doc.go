// Package longbench is LongBench v1 as its own pred.py runs it: 21 tasks in their native JSONL, official prompts and
// answer lengths, truncation in the middle, and LongBench-E's length buckets.
//
// It owns prompts, truncation, chat-template exceptions, stop rules and prediction files (pred/MODEL/TASK.jsonl). Scores
// come from eval/metrics. It never downloads data. Lengths of prompts are tokens; a row's length is LongBench's own (words
// or characters).
package longbench

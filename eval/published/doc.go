// Package published runs benchmarks of long reading and of mathematics on the files that their authors publish: LongBench v2, InfiniteBench,
// LooGLE, MATH and AIME. Prompts, cuts and lengths of answers are the official ones; scores are package metrics', held to the official code.
// It ships no data.
package published

// Package eval measures what KV-cache policies cost and save: the words that suites, runs and reports share.
//
// It owns the Runner interface (what a suite needs of a model) and the Suite interface (samples in, outcomes out). Below it
// live the suites (longbench, ruler, choice, forced), the metrics, the Runner on engines of this process (local), the run
// directory (run), work sharing (share) and reports (report). It never serves HTTP and never prints.
//
// Token ids are int; scores are 0..1 unless a Metric says otherwise; times are time.Duration in Go and milliseconds in
// JSON; memory is bytes by tier name. A Runner serves one call at a time; suites hold no state between samples.
package eval

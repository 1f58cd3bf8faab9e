// Package eval measures what KV-cache policies cost and save: the words that suites, runs and reports share.
//
// It owns the Runner interface (what a suite needs of a model), the Suite interface (samples in, outcomes out) and the
// adapter that makes a Runner of an engine. Suites live below it (longbench, ruler, choice, text), as do the metrics, the
// run directory (run), work sharing (share) and reports (report). It never serves HTTP and never prints.
//
// Token ids are int; scores are 0..1 unless a Metric says otherwise; times are time.Duration in Go and milliseconds in
// JSON; memory is bytes by tier name. A Runner serves one call at a time; suites hold no state between samples.
package eval

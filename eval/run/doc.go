// Package run keeps one evaluation in one folder, so that it can be stopped at any moment and taken up again.
//
// It owns the folder: options.json (what was asked, compared field by field when a run is taken up), machine.json,
// samples.jsonl (one line an outcome, appended and synced), results.json (scores, errors, times, memory; replaced in one
// step), the suite's own prediction files, and a lock. It owns the loop over samples, and how outcomes become results. It
// never runs models itself (eval.Runner) and never prints.
//
// A kill or a loss of power at any moment loses at most the outcomes of the sample in flight: a half-written last line is cut off when the
// folder is opened. Scores are percent or nats as eval.Metric says; times in JSON are milliseconds, memory bytes.
package run

// Package report puts runs side by side: a table for the terminal, JSON, one self-contained HTML page,
// a leaderboard of methods at equal bytes; and a run in lm-evaluation-harness's form.
//
// It owns the joining of runs into groups of comparable series, paired bootstrap intervals of differences from full,
// Pareto fronts, and the drawing (inline SVG, no scripts but the one that sorts a leaderboard, nothing fetched; palette of Okabe and Ito with shapes and
// numbers besides colour, light and dark). It never runs anything and never changes a run folder.
//
// Percentages are 0..100, times milliseconds, memory bytes, intervals 95 %. All functions are deterministic: the bootstrap
// is seeded.
package report

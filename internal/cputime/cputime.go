// Package cputime says how much processor time this process has used: benchmarks report it because, on a machine that others use too,
// it is steadier than the clock's.
package cputime

// Package simulate answers every figure and table of the four papers at paper scale (`infer simulate ID`).
//
// What it owns: the experiments by ID, the hardware that they assume (hardware/*.toml: every value with unit, source and, where
// the papers leave it open, a range), what the papers print (data/targets.json) and the form of the results (Result, Row). What
// it never does: run a model, read a clock, use a random source that is not seeded, or fit anything on what it predicts.
//
// How a value was reached is its Kind: closed_form (bytes and operations, exact), calibrated (a value that may be fitted),
// predicted, or sensitivity (predicted, with the band that parameters' ranges give; at most a factor of 2). All are modelled.
//
// What runs the product's own code: flash reads of InstInfer take the time of csdshim/nand, placements of EvicPress are those of
// package policy. The rest is a hardware model: servers with rates and latencies (Sec. 6 of the experiments' list), whose
// layer times are the maximum of operations and bytes; the code of engine, retrieval and offload does not run here yet.
//
// Calibration. GPU rates come from the values that may be fitted (calibrated_on lists them), by the arithmetic beside each
// value in hardware/*.toml; TestCalibration works them out again.
//
// Units: bytes, seconds, operations, fractions; the unit is in every row. Concurrency: Run may be called by many goroutines; one
// call uses one.
package simulate

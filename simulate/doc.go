// Package simulate answers every figure and table of the four papers at paper scale (`infer simulate ID`).
//
// What it owns: the experiments by ID, the hardware that they assume (hardware/*.toml: every value with unit, source and, where
// the papers leave it open, a range), what the papers print (data/targets.json) and the form of the results (Result, Row). What
// it never does: run a model by itself, use a random source that is not seeded, or fit anything on what it predicts; Timed, FreeDisk and
// MeasureDrive alone read the machine's clock.
//
// Host is a hardware file of one machine. An engine opened on PaceHost computes real numbers and takes the host's time, by its own
// code, on a clock of events: `infer bench --predict`. What costs time: the backend's calls, scoring, gathering, asking a tier for records and
// taking what has come (clock.Spend), handing reads over, polling, waking, and the device. An SSD's reads go through the product's own engine
// (vfs.NewRingEngine on a modelled ring), so who hands over and who takes is decided by the same code; a drive is csdshim's, reached by
// the product's own store (offload.Link). Everything else of the product takes no time. Calibrate takes what asking costs from a run on
// a FreeDisk, at another depth. A Recording is what real runs took, call by call; Learn, and Fit for a file, work out of it what calls take beside a
// tier's traffic, handing over, moving and taking a read, and what a drive's process takes to fetch and to attend.
//
// How a value was reached is its Kind: closed_form (bytes and operations, exact), calibrated (a value that may be fitted),
// predicted, or sensitivity (predicted, with the band that parameters' ranges give; at most a factor of 2). All are modelled.
//
// What runs the product's own code (Result.Uses names its packages). HillInfer's decode step of hillinfer-fig7, -fig9 (both
// drives), -alpha and -built, rows whose Code is Shared: policy, retrieval, kvmanager with its token cache, offload's queue and
// csdshim's drive (called in process, not through its socket) on one clock of events, in miniature (pipe.go), with what computes
// behind an interface. Flash reads of InstInfer take the time of csdshim/nand; placements of EvicPress, and the balance of
// hillinfer-fig16b, are package policy's; what expert-stream reads and finds in memory is decided by weights/stream on a clock of its
// own. The rest, the rows of HillInfer that papers print included, is a hardware model: rates and
// latencies (Sec. 6 of the experiments' list), whose layer times are the maximum of operations and bytes.
//
// Score traces decide what is read and what of it is hot: synthetic ones (scores.go), fitted to recorded ones of a real model by moments of
// the scores (FitScores; HitRates and Turnovers show what both give), or a recorded one itself (ScoreTrace, parameter trace).
//
// What the built step says that the formula does not: where the drive's DRAM holds the codes of every key it agrees with the formula within 10 %
// on a trace of as many hits as that takes for given (OPT-6.7B at batch 4 and 10, TestBuiltStepAgreesWithTheFormula), is shorter where more is
// hot (0.78 of it on the fitted trace), because the host scores and delivers at once, longer at batch 1 and 2, by latencies; and takes
// 1.6 and 2.9 times as long where it does not (LLaMA-13B; Qwen-7B, 8
// sequences of 8,192: 8.6 GB of codes, 4 GB of DRAM): the drive caches codes of hot tokens too, which it never scores, and a
// group whose codes are not cached is read whole, values included; and a layer's fetch waits in the drive behind the scoring of the
// next layer, which was asked for first.
//
// Calibration. GPU rates come from the values that may be fitted (calibrated_on lists them), by the arithmetic beside each
// value in hardware/*.toml; TestCalibration works them out again.
//
// Units: bytes, seconds, operations, fractions; the unit is in every row. Concurrency: Run may be called by many goroutines; one
// call uses one.
package simulate

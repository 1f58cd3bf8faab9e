// Package nand is the time that NAND flash takes: when pages that are read, programmed or erased are done, on an array of
// channels, dies and planes. Replays agree with the simulator MQSim (csdshim, TestReplayAgainstMQSim).
//
// What it owns: when each channel and each die is free. What it never does: hold bytes, know which page is where in the
// translation layer (package flash does), or read a clock: times are given and returned, from any zero.
//
// The rules, per channel, over the operations of one call of Run:
//  1. A free die takes its oldest waiting read, else its oldest waiting program, else its oldest erase; with it goes the
//     oldest waiting operation of that kind and row in each other plane of the die.
//  2. A read senses (Sense), then its pages cross the channel one after another (Cross each). A program's pages cross
//     first, then the die programs them (Program). An erase occupies its die alone.
//  3. Without CacheRead, sensed pages cross before anything else begins on their channel, nothing begins while pages cross
//     it, and a die is free when its pages have left: MQSim's order. With it a die has a second register: it senses on
//     while the pages sensed before cross, or wait to.
//  4. Dies of a channel start in turn; pages that were sensed first cross first.
//
// Invariants, each with a test: (1) no completion lies before its operation's own sensing or programming and crossing;
// (2) the last completion of a call is never before the closed-form bound of perfect overlap; (3) a channel never carries
// two pages at once, over all calls.
//
// Calls one after another: earlier calls have been promised their times, so a later one finds the dies taken until then
// and crosses in the gaps that are left on its channel. Operations of one call compete by the rules above.
//
// Concurrency: an Array is for one goroutine at a time.
package nand

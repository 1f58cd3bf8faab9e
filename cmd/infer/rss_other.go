//go:build unix && !linux

package main

// rssUnitBytes is the unit of Rusage.Maxrss: bytes on BSD-like systems.
const rssUnitBytes = 1

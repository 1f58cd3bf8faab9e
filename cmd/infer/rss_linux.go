package main

// rssUnitBytes is the unit of Rusage.Maxrss: KiB on Linux.
const rssUnitBytes = 1024

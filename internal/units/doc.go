// Package units reads and prints the quantities of the command line: sizes in bytes (`64MiB`), counts (`8k`) and
// shares of a whole (`20%`, `0.2`, `1024`).
//
// It owns the spelling of these three and nothing else: it knows no flag names, no defaults and no limits of the things
// measured. Sizes are int64 bytes, counts are int; k, m and g of a count are binary (1k = 1024, the papers' "1k tokens"),
// as are KiB, MiB, GiB and TiB of a size, while kB, MB, GB and TB are decimal. All functions are pure and safe for
// concurrent use. Every error wraps ErrSyntax or ErrRange and quotes the text it was given.
package units

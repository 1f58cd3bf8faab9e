package main

import (
	"errors"
	"math/rand/v2"
	"strconv"
)

// seedValue is a seed as a flag takes it: -1 is a random one, as elsewhere.
type seedValue uint64

// Set implements pflag.Value.
func (v *seedValue) Set(text string) error {
	if text == "-1" {
		*v = seedValue(rand.Uint32())
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return errors.New("want a whole number of 0 or more, or -1 for a random one")
	}
	*v = seedValue(n)
	return nil
}

// String implements pflag.Value.
func (v *seedValue) String() string { return strconv.FormatUint(uint64(*v), 10) }

// Type implements pflag.Value.
func (v *seedValue) Type() string { return "int" }

package offload

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxRate bounds the numbers of a file of rates: bytes, bytes a second and seconds are all below it.
const maxRate = 1e18

// CheckRates refuses a JSON file of rates with a number that no hardware has: below 0, or above 1e18. The error names it as a.b[2].c.
// What a fit says of itself, under fit, may be below 0.
func CheckRates(file []byte) error {
	var top any
	d := json.NewDecoder(bytes.NewReader(file))
	if err := d.Decode(&top); err != nil {
		return err
	}
	return checkRates("", top)
}

func checkRates(at string, v any) error {
	switch v := v.(type) {
	case float64:
		if v < 0 || v > maxRate {
			return fmt.Errorf("%s is %g, want 0 to %g", at, v, float64(maxRate))
		}
	case []any:
		if at == "fit" { // a line's own figures: what a fit gives may lie below 0
			return nil
		}
		for i, x := range v {
			if err := checkRates(fmt.Sprintf("%s[%d]", at, i), x); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := name
			if at != "" {
				inner = at + "." + name
			}
			if err := checkRates(inner, v[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

package main

import "strings"

// splitList splits a comma-separated list; the empty string has no elements.
func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// cutSide reads "k=TYPE" or "v=TYPE".
func cutSide(s string) (side, value string, ok bool) {
	side, value, ok = strings.Cut(s, "=")
	return side, value, ok && (side == "k" || side == "v")
}

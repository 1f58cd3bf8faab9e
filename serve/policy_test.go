package serve

import (
	"testing"

	"terrace/policy"
)

func mustPolicy(t testing.TB, text string) *policy.Spec {
	t.Helper()
	spec, err := policy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

package policy

import "testing"

func TestUnscored(t *testing.T) {
	for spec, want := range map[string]int{
		"full": 0, "knorm": 0, "streaming_llm": 0, "snapkv": 64, "snapkv:window_size=16": 16, "pyramidkv": 64, "finch": 32,
		"adakv": 64, "adakv:press=knorm": 0, "chunkkv:press=snapkv": 64, "criticalkv:press=snapkv": 64, "full+snapkv": 64, "per_layer:press=finch": 32, "decoding:press=snapkv": 64, "decoding": 0,
	} {
		p, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Unscored(); got != want {
			t.Errorf("%s keeps %d tokens by their place, want %d", spec, got, want)
		}
	}
}

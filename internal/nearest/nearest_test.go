package nearest

import "testing"

func TestOf(t *testing.T) {
	known := []string{"generate", "chat", "policies", "pull", "temperature", "top-p", "snapkv", "StreamingLLM"}
	for got, want := range map[string]string{
		"genrate": "generate", "generat": "generate", "gen": "generate", "chta": "chat", "caht": "chat", "polices": "policies", "pul": "pull", "temprature": "temperature", "streamingllm": "StreamingLLM",
		"top_p": "top-p", "snapvk": "snapkv", "zzz": "", "": "", "c": "", "chat": "chat", "benchmark": "",
	} {
		if best := Of(got, known); best != want {
			t.Errorf("%q: %q, want %q", got, best, want)
		}
	}
	if h := Hint("chta", known); h != `, did you mean "chat"?` || Hint("zzz", known) != "" || Hint("chat", known) != "" {
		t.Errorf("hint %q", h)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3}, {"abc", "abc", 0}, {"ä", "a", 1}, {"abcdefgh", "x", 5}} {
		if d := distance(c.a, c.b, 5); d != c.want || distance(c.b, c.a, 5) != d {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, d, c.want)
		}
	}
}

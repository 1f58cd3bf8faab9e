package stops

import (
	"testing"

	"pgregory.net/rapid"
)

// TestScannerAgainstWholeText cuts texts into random pieces: what is shown must be the text up to the first stop
// string, whatever the pieces.
func TestScannerAgainstWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 0, 30, -1).Draw(t, "text")
		stops := rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 4, -1), 0, 3).Draw(t, "stops")
		free := rapid.IntRange(0, 6).Draw(t, "free") // runes in which no stop string ends
		// The stop string that is complete first ends the text; of several, the one that begins first.
		want, stopped := text, false
		for end := 0; end <= len(text) && !stopped; end++ {
			at := -1
			for _, s := range stops {
				if i := end - len(s); i >= 0 && end > free && text[i:end] == s && (at < 0 || i < at) {
					at = i
				}
			}
			if at >= 0 {
				want, stopped = text[:at], true
			}
		}
		s, got, met := Scanner{Stops: stops}, "", false
		for i, r := range text {
			if i < free {
				got += s.Pass(string(r))
				continue
			}
			show, stop := s.Push(string(r))
			if got += show; stop {
				met = true
				break
			}
		}
		if !met {
			got += s.Flush()
		}
		if got != want || met != stopped {
			t.Fatalf("stops %q in %q, the first %d free: got %q %v, want %q %v", stops, text, free, got, met, want, stopped)
		}
	})
}

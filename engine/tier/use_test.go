package tier

import (
	"testing"
	"time"
)

// TestUseOfATime: times and counts of two reports are subtracted and added; peaks stay.
func TestUseOfATime(t *testing.T) {
	before := Use{Reads: 2, Stall: 3, ScoreWait: 5, ReadBusy: 7, TokensRead: 10, TokensFetched: 10, MovedBytes: map[string]int64{"csd>host": 11}, PeakBytes: map[string]int64{"host": 1}}
	now := Use{Reads: 5, Stall: 7, ScoreWait: 16, ReadBusy: 20, TokensRead: 30, TokensFetched: 15, MovedBytes: map[string]int64{"csd>host": 31}, PeakBytes: map[string]int64{"host": 9}}
	d := now.Since(before)
	if d.Reads != 3 || d.Stall != 4 || d.ScoreWait != 11 || d.ReadBusy != 13*time.Nanosecond || d.MovedBytes["csd>host"] != 20 || d.PeakBytes["host"] != 9 || d.HitRate == nil || *d.HitRate != 0.75 {
		t.Errorf("%+v", d)
	}
	if sum := before.Plus(d); sum.Reads != 5 || sum.Stall != 7 || sum.ScoreWait != 16 || sum.ReadBusy != 20 || sum.MovedBytes["csd>host"] != 31 || sum.PeakBytes["host"] != 9 {
		t.Errorf("%+v", sum)
	}
	if before.MovedBytes["csd>host"] != 11 {
		t.Error("a report was changed")
	}
}

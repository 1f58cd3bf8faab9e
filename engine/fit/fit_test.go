package fit

import (
	"os"
	"testing"

	"terrace/engine"
	"terrace/engine/fakes"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/weights"
)

func TestMain(m *testing.M) { os.Exit(fakes.Main(m)) }

// TestOf: KV of 3 layers and 2 heads a token, all of the context in much memory, nothing in one byte.
func TestOf(t *testing.T) {
	file, err := weights.Open(fakes.Small(t))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	o := engine.Options{}
	if err := o.Validate(m); err != nil {
		t.Fatal(err)
	}
	l := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 32, ValueDim: 32, Tokens: 16}
	if r := Of(m, o, 1<<30, 0); r.KVBytesPerToken != int64(3*2*l.PageBytes()/16) || r.LongestContext != 2048 || r.WeightsBytes <= 0 {
		t.Errorf("%+v", r)
	}
	if r := Of(m, o, 1, 0); r.LongestContext != 0 {
		t.Errorf("%+v in one byte", r)
	}
}

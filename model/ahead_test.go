package model

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/hf/hftest"
)

// TestReadAhead: what is read ahead is every matrix of a small model, and nothing once it was stopped; an error is the one that
// whoever asks for the weight gets.
func TestReadAhead(t *testing.T) {
	c := hftest.Llama()
	dir := hftest.Folder(t, c, hftest.Decoder(c))
	open := func() *Model {
		w, err := weights.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Close() })
		m, err := Open(w)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	linears := func(m *Model) []*Linear {
		list := []*Linear{m.Params.Embed}
		for i := range m.Params.Layers {
			l := &m.Params.Layers[i]
			list = append(list, l.Q, l.K, l.V, l.O, l.Gate, l.Up, l.Down)
		}
		return list
	}

	m := open()
	m.readAhead(new(atomic.Bool))
	for i, l := range linears(m) {
		if l.matrix == nil {
			t.Errorf("matrix %d of the pass was not read", i)
		}
	}

	m = open()
	var stop atomic.Bool
	stop.Store(true)
	m.readAhead(&stop)
	for i, l := range linears(m) {
		if l.matrix != nil {
			t.Errorf("matrix %d was read after the stop", i)
		}
	}

	m = open()
	end := m.ReadAhead()
	for i, l := range linears(m) { // beside it
		if w, _, err := l.Matrix(); w == nil || err != nil {
			t.Errorf("matrix %d: %v, %v", i, w, err)
		}
	}
	end()

	m = open()
	up := m.Params.Layers[0].Up
	data, err := up.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	bad := bytes.Repeat([]byte{0xff}, len(data)) // NaN in every type
	up.Tensor = gguf.NewTensor(up.Tensor.Name, up.Tensor.Type, up.Tensor.Shape, func() ([]byte, error) { return bad, nil })
	m.readAhead(new(atomic.Bool))
	if m.Params.Layers[0].Down.matrix != nil {
		t.Error("it went on after an error")
	}
	if _, _, err := up.Matrix(); !errors.Is(err, gguf.ErrNotFinite) {
		t.Errorf("a weight that is not finite: %v", err)
	}
}

package engine

import (
	"os"
	"slices"
	"sync"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
	"terrace/weights"
)

// shared are models that engines of many tests run, opened and packed once.
var shared struct {
	sync.Mutex
	models map[string]*model.Model
}

// sharedModel is the model in a file, which stays open; under the race detector each test has one
// of its own, so that engines share nothing there but what they always share.
func sharedModel(t testing.TB, path string) *model.Model {
	t.Helper()
	if raceDetector {
		return openFile(t, path)
	}
	shared.Lock()
	defer shared.Unlock()
	if m := shared.models[path]; m != nil {
		return m
	}
	file, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if shared.models == nil {
		shared.models = map[string]*model.Model{}
	}
	shared.models[path] = m
	return m
}

func small(t testing.TB, o Options) *Engine {
	t.Helper()
	return openOn(t, sharedModel(t, fakes.Small(t)), o)
}

func TestMain(m *testing.M) { os.Exit(fakes.Main(m)) }

// forced reads a prompt, then the given ids one a step, and returns the logits after the prompt and after each.
func forced(t testing.TB, e *Engine, prompt, next []int) [][]float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	out := [][]float32{slices.Clone(s.Logits())}
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return out
}

func windowed(t testing.TB, o Options) *Engine {
	t.Helper()
	return openOn(t, sharedModel(t, fakes.Windowed(t)), o)
}

func withExperts(t testing.TB, o Options) *Engine {
	t.Helper()
	return openOn(t, sharedModel(t, fakes.Experts(t)), o)
}

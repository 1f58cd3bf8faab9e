package engine

import (
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/golden"
	"terrace/model"
	"terrace/model/vulkan"
)

// onDevice opens models on vulkan:cpu, or as many of their layers as it computes.
func onDevice(t *testing.T, open func(t testing.TB) *model.Model) func(t testing.TB, o Options) *Engine {
	t.Helper()
	if !slices.Contains(parityBackends, vulkan.CPU) {
		t.Skip("no driver for the CPU")
	}
	return func(t testing.TB, o Options) *Engine {
		o.Backend = allThatFit
		return openOn(t, open(t), o)
	}
}

// recurrentModels are models with each kind of mixer, all of whose layers the device computes, and one that has some on the host.
func recurrentModels(t *testing.T, test func(t *testing.T, open func(t testing.TB) *model.Model)) {
	t.Run("mixed", func(t *testing.T) { test(t, func(testing.TB) *model.Model { return fakes.Mixed(3) }) })
	for _, name := range []string{"lfm3", "qwen3_5", "falcon_h1", "mamba2", "nemotron_h"} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t testing.TB) *model.Model {
				return openFile(t, golden.Shared(t, "data", "golden", "families", name))
			})
		})
	}
}

// TestVulkanStatesAnyWay: states that stay on the device give the same bits in chunks of any size, alone and beside other texts, in forks and
// texts that are taken back, to where their state is known or not; texts that fail beside others leave no trace.
func TestVulkanStatesAnyWay(t *testing.T) {
	recurrentModels(t, func(t *testing.T, model func(t testing.TB) *model.Model) {
		open := onDevice(t, model)
		t.Run("any way", func(t *testing.T) { anyWay(t, open) })
		t.Run("fork and back", func(t *testing.T) { forkAndBack(t, open) })
		if name := t.Name(); !strings.HasSuffix(name, "/mixed") && !strings.HasSuffix(name, "/qwen3_5") && !golden.Thorough() {
			return
		}
		t.Run("one fails", func(t *testing.T) { failInTheMiddle(t, open, 0) })
	})
}

// TestVulkanStepsMoveNoState: steps leave the states of recurrent layers on the device, forks bring them down.
func TestVulkanStepsMoveNoState(t *testing.T) {
	for _, name := range []string{"mamba2", "qwen3_5"} {
		open := onDevice(t, func(t testing.TB) *model.Model {
			return openFile(t, golden.Shared(t, "data", "golden", "families", name))
		})
		e := open(t, Options{})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(40, 1), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		moved := func(do func() error) int64 {
			before := e.device.keeper.DeviceUse()
			if err := do(); err != nil {
				t.Fatal(err)
			}
			after := e.device.keeper.DeviceUse()
			return after.UpBytes - before.UpBytes + after.DownBytes - before.DownBytes
		}
		state := e.cache.StateBytes()
		for i := range 3 {
			got := moved(func() error { return s.Decode(i) })
			if got >= state {
				t.Errorf("%s, step %d: %d bytes moved, the states have %d", name, i, got, state)
			}
		}
		s.Logits()
		if got := moved(func() error {
			f, err := s.Fork(nil)
			if err == nil {
				f.Close()
			}
			return err
		}); got != state {
			t.Errorf("%s: %d bytes moved for a fork, want the states' %d", name, got, state)
		}
	}
}

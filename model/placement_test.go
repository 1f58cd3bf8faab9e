package model_test

import (
	"errors"
	"testing"

	"terrace/model"
)

// TestParsePlacement reads what --gpu-layers and --cpu-moe become.
func TestParsePlacement(t *testing.T) {
	for s, want := range map[string]model.Placement{"all": {}, "auto": {Layers: model.AutoLayers}, "7": {Layers: 7}, "auto,cpu-moe=3": {Layers: model.AutoLayers, HostExperts: 3},
		"all,cpu-moe": {HostExperts: 1024}, "2,cpu-moe=0": {Layers: 2}} {
		if got, err := model.ParsePlacement(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "0", "-1", "nine", "auto,", "auto,cpu-moe=", "auto,cpu-moe=-1", "all,gpu-moe", "all,cpu-moe=x"} {
		if got, err := model.ParsePlacement(s); !errors.Is(err, model.ErrConfig) {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
}

package hf

import (
	"maps"
	"slices"
	"strings"
)

// family presents one model_type.
type family struct {
	arch    string        // GGUF's name of the architecture
	figures func(v *view) // metadata; must leave a fault rather than a bad figure
	tensors func(v *view)
}

var families = map[string]family{}

// register is called from the init of each family's file; a name given twice is a bug.
func register(modelType string, f family) {
	if _, dup := families[modelType]; dup {
		panic("hf: model_type registered twice: " + modelType)
	}
	families[modelType] = f
}

// aliases are model_types that hold the same text model under another name.
var aliases = map[string]string{"gemma3": "gemma3_text"}

// family finds the family of a config by model_type; nil after a fault.
func (v *view) family() *family {
	c := v.cfg
	kind := c.stringOr("model_type", "")
	if to, ok := aliases[kind]; ok {
		kind = to
	}
	if f, ok := families[kind]; ok {
		return &f
	}
	archs, _ := c.values["architectures"].([]any)
	v.faults.add("%s: model_type %q (architectures %v): %w (known: %s)", c.where, kind, archs, ErrUnknownArchitecture, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	return nil
}

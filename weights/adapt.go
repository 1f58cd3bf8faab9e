package weights

import (
	"errors"

	"terrace/weights/lora"
)

// Adapter names a LoRA adapter and how much of it is added; 1 is all of it.
type Adapter struct {
	Path  string // a PEFT folder or its safetensors file, or a GGUF file
	Scale float64
}

// Adapt adds adapters to the weights, which nobody may have used yet. Tensors that they change are computed at their first use,
// as F32 or F16. Errors wrap ErrFormat, ErrUnsupported or those of the system; the model is then as it was.
func (m *Model) Adapt(adapters []Adapter) error {
	var uses []lora.Use
	var err error
	for _, a := range adapters {
		var open *lora.Adapter
		if open, err = lora.Open(a.Path); err != nil {
			break
		}
		uses = append(uses, lora.Use{Adapter: open, Scale: a.Scale})
	}
	if err == nil {
		m.tensors, err = mergeInto(m, uses)
	}
	if err != nil {
		for _, u := range uses {
			err = errors.Join(err, u.Adapter.Close())
		}
		return err
	}
	for _, u := range uses {
		m.closers = append(m.closers, u.Adapter)
		m.checks = append(m.checks, u.Adapter.CheckUnchanged)
	}
	for _, t := range m.tensors {
		m.byName[t.Name] = t
	}
	return nil
}

// mergeInto gives the merged tensors, or those that were there with an error.
func mergeInto(m *Model, uses []lora.Use) ([]*Tensor, error) {
	merged, err := lora.Merge(m.meta, m.tensors, uses)
	if err != nil {
		return m.tensors, err
	}
	return merged, nil
}

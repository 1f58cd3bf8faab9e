package engine

import "terrace/internal/cacheshape"

// Cache is what each layer of the model keeps of a text.
func (e *Engine) Cache() cacheshape.Model { return e.cache }

// queryWidth is the numbers of a row's queries in a layer: H·dk.
func (e *Engine) queryWidth(layer int) int {
	return e.m.Layer[layer].Heads * e.m.Layer[layer].StoredKey()
}

// attendedWidth is the numbers of a row's attention in a layer: H·dv.
func (e *Engine) attendedWidth(layer int) int {
	return e.m.Layer[layer].Heads * e.m.Layer[layer].StoredValue()
}

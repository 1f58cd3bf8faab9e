package convert

import (
	"fmt"

	"terrace/weights/gguf"
)

// weightsFor finds the importance of every tensor that is quantised by a search, nil for the others. Tensors that the matrix does not
// know are quantised without, which is told; the embedding and the head are usually among them. Errors wrap ErrImportance.
func weightsFor(tensors []*gguf.Tensor, infos []gguf.Info, o Options) ([][]float32, error) {
	all := make([][]float32, len(tensors))
	if o.Importance == nil {
		return all, nil
	}
	known, unknown, first := 0, 0, ""
	for i, t := range tensors {
		if len(t.Shape) < 2 || infos[i].Type.BlockLen() == 1 {
			continue
		}
		experts := 1
		if len(t.Shape) == 3 {
			experts = t.Shape[0]
		}
		w, err := o.Importance.Weights(t.Name, experts, t.Cols())
		switch {
		case err != nil && t.Name == "token_embd.weight": // rows are looked up there; what a tied head saw has another shape
		case err != nil:
			return nil, fmt.Errorf("convert: %w: %w", ErrImportance, err)
		case w != nil:
			all[i], known = w, known+1
		case t.Name != "token_embd.weight" && t.Name != "output.weight":
			if unknown++; unknown == 1 {
				first = t.Name
			}
		}
	}
	if known == 0 && unknown > 0 {
		return nil, fmt.Errorf("convert: none of its %d tensors is quantised here: %w", len(o.Importance.Names()), ErrImportance)
	}
	if unknown > 0 {
		o.notice("%d tensors are not in the importance matrix and are quantised without (first: %s)", unknown, first)
	}
	return all, nil
}

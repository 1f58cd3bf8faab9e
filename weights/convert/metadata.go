package convert

import (
	"fmt"
	"strings"

	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/vocab"
)

// fileMeta is the metadata of the written file: the source's, without what belongs to its own file, and with the tokenizer of
// a folder.
func fileMeta(src *weights.Model, o Options) (*gguf.Meta, error) {
	meta := src.Meta().Clone()
	for _, key := range meta.Keys() {
		if strings.HasPrefix(key, "split.") || key == layoutKey {
			meta.Delete(key)
		}
	}
	meta.Set("general.file_type", o.fileType())
	meta.Set("general.quantization_version", uint32(2))
	if m := o.Importance; m != nil { // llama-quantize's keys
		if len(m.Datasets) > 0 {
			meta.Set("quantize.imatrix.dataset", m.Datasets[0])
		}
		meta.Set("quantize.imatrix.entries_count", int32(len(m.Names())))
		meta.Set("quantize.imatrix.chunks_count", int32(m.Chunks))
	}
	if src.Format() != "safetensors" {
		return meta, nil
	}
	v, err := vocab.FromModel(meta, src.Path())
	if err != nil {
		return nil, fmt.Errorf("convert: %w: %w", ErrSource, err)
	}
	embedding, err := src.Tensor("token_embd.weight")
	if err != nil {
		return nil, fmt.Errorf("convert: %w", err)
	}
	if err := setVocabulary(meta, v, embedding.Rows(), o); err != nil {
		return nil, err
	}
	return meta, nil
}

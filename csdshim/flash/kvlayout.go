package flash

import "fmt"

// Limits of a KVShape.
const (
	maxKVLayers = 1 << 10
	maxKVHeads  = 1 << 10
)

// Validate reports the first number out of range for pages of a size.
func (s KVShape) Validate(pageBytes int) error {
	wrong := func(name string, got int, want string) error {
		return fmt.Errorf("csdshim: flash: KV shape: %s %d, want %s: %w", name, got, want, ErrGeometry)
	}
	switch {
	case s.Layers < 1 || s.Layers > maxKVLayers:
		return wrong("layers", s.Layers, "1 to 1024")
	case s.Heads < 1 || s.Heads > maxKVHeads:
		return wrong("heads", s.Heads, "1 to 1024")
	case s.ElemBytes != 2 && s.ElemBytes != 4:
		return wrong("element bytes", s.ElemBytes, "2 or 4")
	case s.KeyDim < 1 || s.KeyRowBytes() > pageBytes:
		return wrong("key dimensions", s.KeyDim, "at least 1, and a row in a page")
	case s.ValueDim < 1 || s.ValueRowBytes() > pageBytes:
		return wrong("value dimensions", s.ValueDim, "at least 1, and a row in a page")
	case s.TokenGroup < 1 || s.tokenPageBytes() > pageBytes:
		return wrong("tokens a page", s.TokenGroup, "at least 1, and all of them in a page")
	case s.EmbeddingGroup != 0 && s.EmbeddingGroup != 2 && s.EmbeddingGroup != 4 && s.EmbeddingGroup != 8:
		return wrong("dimensions a page", s.EmbeddingGroup, "0, 2, 4 or 8")
	case s.EmbeddingGroup > 0 && s.KeyDim%s.EmbeddingGroup != 0:
		return wrong("key dimensions", s.KeyDim, fmt.Sprintf("a multiple of %d, the dimensions of a page", s.EmbeddingGroup))
	}
	return nil
}

// EmbeddingGroupFor is how many dimensions an embedding page should hold for a sequence of an expected length: the fewest of 2,
// 4 and 8 whose pages it fills, else 8. (InstInfer leaves the rule open, Sec. IV-C)
func EmbeddingGroupFor(pageBytes, elemBytes, expectedTokens int) int {
	for _, m := range []int{2, 4} {
		if pageBytes/(m*elemBytes) <= expectedTokens {
			return m
		}
	}
	return 8
}

// tokenPageBytes is what a full token page holds.
func (s KVShape) tokenPageBytes() int {
	if s.Paired {
		return s.TokenGroup * (s.KeyRowBytes() + s.ValueRowBytes())
	}
	return s.TokenGroup * max(s.KeyRowBytes(), s.ValueRowBytes())
}

// tokenParts are the parts that have token pages of their own.
func (s KVShape) tokenParts() []KVPart {
	if s.Paired {
		return []KVPart{KVKeys}
	}
	return []KVPart{KVKeys, KVValues}
}

// paging is whose token pages hold a part, and where on a page it begins.
func (s KVShape) paging(part KVPart) (of KVPart, at int) {
	if s.Paired && part == KVValues {
		return KVKeys, s.TokenGroup * s.KeyRowBytes()
	}
	return part, 0
}

// tokenKey is the token map's place of a page of keys or values.
func (s KVShape) tokenKey(seq uint32, layer, head int, part KVPart, group int) Key {
	part, _ = s.paging(part)
	return Key{Seq: seq, Table: Token, Layer: int32((layer*s.Heads+head)*2 + int(part)), Group: int32(group)}
}

// embeddingKey is the embedding map's place of a page: of neighbouring dimensions, and a block of tokens.
func (s KVShape) embeddingKey(seq uint32, layer, head, dims, block int) Key {
	return Key{Seq: seq, Table: Embedding, Layer: int32(layer*s.Heads + head), Group: int32(block*(s.KeyDim/s.EmbeddingGroup) + dims)}
}

// Channels: consecutive groups of a head go to different channels, heads begin on different ones, a group's values beside its
// keys; of the embedding copy neighbouring dimensions and blocks are apart.
func tokenChannel(layer, head int, part KVPart, group int) int {
	return group + 2*head + int(part) + layer
}

func embeddingChannel(layer, head, dims, block int) int { return dims + block + head + layer }

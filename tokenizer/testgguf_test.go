package tokenizer

import (
	"encoding/binary"
	"math"
	"os"
	"testing"
)

// readGGUF is a minimal metadata reader for these tests only.
func readGGUF(tb testing.TB, path string) map[string]any {
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Skipf("no model file: %v", err)
	}
	p := 0
	u32 := func() uint32 { p += 4; return binary.LittleEndian.Uint32(b[p-4:]) }
	u64 := func() uint64 { p += 8; return binary.LittleEndian.Uint64(b[p-8:]) }
	str := func() string { n := int(u64()); p += n; return string(b[p-n : p]) }
	var val func(kind uint32) any
	val = func(kind uint32) any {
		switch kind {
		case 0, 1, 7:
			p++
			return int(b[p-1])
		case 4, 5:
			return int(int32(u32()))
		case 6:
			return math.Float32frombits(u32())
		case 8:
			return str()
		case 9:
			k, n := u32(), int(u64())
			list := make([]any, n)
			for i := range list {
				list[i] = val(k)
			}
			return list
		case 10, 11:
			return int(u64())
		}
		tb.Fatalf("kind %d", kind)
		return nil
	}
	u32()
	u32()
	u64()
	n := int(u64())
	m := map[string]any{}
	for range n {
		k := str()
		m[k] = val(u32())
	}
	return m
}

func ggufVocab(tb testing.TB, path string) Vocab {
	m := readGGUF(tb, path)
	v := Vocab{BOS: -1, EOS: -1, UNK: -1, PAD: -1, Model: ModelBPE, ControlByText: true}
	key := func(k string) any { return m["tokenizer.ggml."+k] }
	if key("model") == "llama" {
		v.Model = ModelSPM
	}
	v.Pre, _ = key("pre").(string)
	for _, t := range key("tokens").([]any) {
		v.Tokens = append(v.Tokens, t.(string))
	}
	for _, t := range key("token_type").([]any) {
		v.Types = append(v.Types, int32(t.(int)))
	}
	if l, ok := key("scores").([]any); ok {
		for _, t := range l {
			v.Scores = append(v.Scores, t.(float32))
		}
	}
	if l, ok := key("merges").([]any); ok {
		for _, t := range l {
			v.Merges = append(v.Merges, t.(string))
		}
	}
	id := func(dst *int, k string) {
		if n, ok := key(k).(int); ok {
			*dst = n
		}
	}
	id(&v.BOS, "bos_token_id")
	id(&v.EOS, "eos_token_id")
	id(&v.UNK, "unknown_token_id")
	flag := func(k string) bool { n, _ := key(k).(int); return n != 0 }
	v.AddBOS, v.AddEOS, v.AddSpacePrefix = flag("add_bos_token"), flag("add_eos_token"), flag("add_space_prefix")
	v.ChatTemplate, _ = m["tokenizer.chat_template"].(string)
	return v
}

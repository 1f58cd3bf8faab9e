package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"terrace/weights"
	"terrace/weights/hf/hftest"
)

// An adapter changes the text, and with the scale 0 nothing; what is no adapter is refused before anything is generated.
func TestLora(t *testing.T) {
	m, err := weights.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Tensor("blk.0.ffn_down.weight")
	if err != nil {
		t.Fatal(err)
	}
	dir, shape := t.TempDir(), w.Shape
	name := "base_model.model.model.layers.0.mlp.down_proj.lora_"
	for _, err := range []error{m.Close(), os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(`{"peft_type": "LORA", "lora_alpha": 64, "r": 4}`), 0o600),
		hftest.WriteTensors(filepath.Join(dir, "adapter_model.safetensors"), hftest.Shapes{name + "A.weight": {4, shape[1]}, name + "B.weight": {shape[0], 4}})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"generate", "-m", tinyModel, "--raw", "--ignore-eos", "--temperature", "0", "-n", "12", "a b"}
	text := func(more ...string) string {
		code, out, errs := inferWith(t, "", append(args, more...)...)
		if code != exitDone {
			t.Fatalf("%v: exit %d, %s", more, code, errs)
		}
		return out
	}
	plain := text()
	if got := text("--lora", dir+"=0"); got != plain {
		t.Errorf("scale 0: %q, without %q", got, plain)
	}
	if got := text("--lora", dir); got == plain {
		t.Errorf("the adapter changes nothing: %q", got)
	}
	for spec, want := range map[string]int{dir + "=much": exitUsage, "": exitUsage, filepath.Join(dir, "none"): exitData, tinyModel: exitData, t.TempDir(): exitData} {
		if code, out, errs := inferWith(t, "", append(args, "--lora", spec)...); code != want || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("--lora %q: exit %d, %q, %s; want %d", spec, code, out, errs, want)
		}
	}
	l := &loaded{path: tinyModel}
	without, err := l.fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	l.adapters = []weights.Adapter{{Path: dir, Scale: 1}}
	one, err := l.fingerprint()
	l.adapters[0].Scale = 2
	two, err2 := l.fingerprint()
	if err != nil || err2 != nil || one == without || one == two {
		t.Errorf("fingerprints %s, %s, %s; %v %v", without, one, two, err, err2)
	}
}

package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestPresets: what was written is read back, listed and removed with its template; what is no preset is refused by name.
func TestPresets(t *testing.T) {
	p := Presets{Dir: filepath.Join(t.TempDir(), "presets"), Keys: []string{"system", "stop", "chat-template"}}
	values := []Value{{"system", "a b: c"}, {"stop", []string{"x,y", "#z"}}, {"chat-template", "mine.jinja"}}
	if err := p.Write("terse:v1", "small", values, []byte("{{ x }}")); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(p.Dir, "terse@v1.jinja")
	want := Preset{"small", map[string][]string{"system": {"a b: c"}, "stop": {"x,y", "#z"}, "chat-template": {own}}}
	if got, ok, err := p.Read("terse:v1"); !ok || err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v %v", got, ok, err)
	}
	if text, err := os.ReadFile(own); err != nil || string(text) != "{{ x }}" {
		t.Errorf("template %q, %v", text, err)
	}
	if err := p.Write("plain", "m", []Value{{"chat-template", "mine.jinja"}}, nil); err != nil {
		t.Fatal(err)
	}
	if got, _, _ := p.Read("plain"); got.Values["chat-template"][0] != "mine.jinja" {
		t.Errorf("%+v", got)
	}
	if got := p.Names(); !reflect.DeepEqual(got, []string{"plain", "terse:v1"}) {
		t.Errorf("names %v", got)
	}
	for _, name := range []string{"none", "Bad Name", "../x", "a:b:c", ""} {
		if _, ok, err := p.Read(name); ok || err != nil {
			t.Errorf("%q: %v %v", name, ok, err)
		}
		if gone, err := p.Remove(name); gone || err != nil {
			t.Errorf("remove %q: %v %v", name, gone, err)
		}
	}
	for text, want := range map[string]string{"from: m\nthreads: 3\n": `"threads" is nothing that a preset sets`, "system: x\n": "want one model", "from: [a, b]\n": "want one model", "from: \"\"\n": "want one model", "from: [[a]]\n": "list in a list"} {
		if err := os.WriteFile(p.File("odd"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := p.Read("odd"); ok || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v %v, want %q", text, ok, err, want)
		}
	}
	for _, name := range p.Names() {
		if gone, err := p.Remove(name); !gone || err != nil {
			t.Errorf("remove %s: %v %v", name, gone, err)
		}
	}
	if left, err := os.ReadDir(p.Dir); err != nil || len(left) != 0 {
		t.Errorf("left %v %v", left, err)
	}
}

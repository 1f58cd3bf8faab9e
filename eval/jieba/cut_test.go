package jieba

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"terrace/internal/golden"
)

func TestCutsEqualToJieba(t *testing.T) {
	f, err := os.Open(golden.Shared(t, "data", "golden", "metrics", "jieba_cut.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 16<<20)
	n := 0
	for s.Scan() {
		var row struct {
			Text string
			Cut  []string
		}
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if got := Cut(row.Text); !slices.Equal(got, row.Cut) {
			t.Errorf("row %d:\n got %q\nwant %q", n, got, row.Cut)
		}
		n++
	}
	if n == 0 {
		t.Fatal("no rows")
	}
}

// Cuts that jieba 0.42.1 made, chosen for the corners: HMM words, ASCII runs, blanks, characters outside the tables.
func TestCutCorners(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "",
		"我来到北京清华大学":             "我|来到|北京|清华大学",
		"他来到了网易杭研大厦":            "他|来到|了|网易|杭研|大厦",
		"版本v1.2.3-beta，涨了3.5%。": "版本|v1.2|.|3|-|beta|，|涨|了|3.5%|。",
		"a\r\nb\u3000c\n":       "a|\r\n|b|\u3000|c|\n",
		"C++和c#比T恤贵25.89%左右":    "C++|和|c#|比|T恤|贵|25.89%|左右",
		"\U00020000龥鿕":          "\U00020000|龥|鿕",
	} {
		if got := strings.Join(Cut(text), "|"); got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestCutLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("的一是在不了有和人这中大为上个国我以要他A1.%-#\r\n \u3000。，龘🙂é"))).Draw(t, "text")
		words := Cut(text)
		if strings.Join(words, "") != text || slices.Contains(words, "") {
			t.Fatalf("%q cut into %q", text, words)
		}
	})
}

func BenchmarkCut(b *testing.B) {
	text := strings.Repeat("他来到了网易杭研大厦，体验服就强大了，不是一个级别的服务器。", 100)
	Cut("一")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Cut(text)
	}
}

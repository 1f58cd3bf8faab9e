package terrace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"

	"terrace"
	"terrace/engine"
	"terrace/serve"
)

// A model by name is fetched once, then kept.
func Example() {
	ctx := context.Background()
	m, err := terrace.Open(ctx, "smollm2:135m", terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	question := []terrace.Message{{Role: "user", Content: "Why is the sky blue?"}}
	for piece, err := range m.Chat(ctx, question, terrace.Settings{MaxTokens: 100}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(piece.Text)
	}
}

// The last piece says why the answer ended and what it took.
func ExampleModel_Generate() {
	path, err := tiny() // a random model, so that this runs anywhere
	if err != nil {
		log.Fatal(err)
	}
	m, err := terrace.Open(context.Background(), path, terrace.Options{Context: 256})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for piece, err := range m.Generate(context.Background(), "Once upon a time", terrace.Settings{MaxTokens: 8, IgnoreEnd: true}) {
		if err != nil {
			log.Fatal(err)
		}
		if piece.Use != nil {
			fmt.Println(piece.Finish, "after", piece.Use.Tokens, "tokens")
		}
	}
	// Output: length after 8 tokens
}

// A session reads a text once, under a policy and on tiers; forks ask different things of it.
func ExampleModel_NewSession() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{Tiers: []string{"host=8MiB"}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	document, err := m.NewSession("snapkv:budget=32")
	if err != nil {
		log.Fatal(err)
	}
	defer document.Close()
	if err := document.Read(ctx, "A document of more than a hundred tokens, of which a policy keeps thirty-two: those that its last words looked at most."); err != nil {
		log.Fatal(err)
	}
	kv, err := document.KV()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(kv.Tokens > 100, kv.Kept)
	question, err := document.Fork("")
	if err != nil {
		log.Fatal(err)
	}
	defer question.Close()
	if err := question.Read(ctx, " What does it say?"); err != nil {
		log.Fatal(err)
	}
	answer, err := terrace.Text(question.Generate(ctx, terrace.Settings{MaxTokens: 5}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(answer) > 0)
	// Output:
	// true 32
	// true
}

// A model serves HTTP beside what the program does with it.
func ExampleModel_Handler() {
	m, err := terrace.Open(context.Background(), "smollm2:135m", terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: m.Handler()}
	serve.Limit(server)
	log.Fatal(server.ListenAndServe())
}

// An engine is the layer below: whoever drives its sessions sees logits and chooses tokens.
func ExampleFile_Engine() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	file, err := terrace.OpenFile(ctx, path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	e, err := file.Engine(ctx, terrace.Options{Context: 600, Notice: func(line string) { fmt.Println(line) }})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	tok, err := file.Tokenizer("")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tok.Encode("Once upon a time", true, false)
	if err != nil {
		log.Fatal(err)
	}
	s, err := e.NewSession(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(ctx, ids, engine.PrefillHooks{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Tokens() == len(ids), len(s.Logits()), "logits")
	// Output:
	// the context of 600 tokens is longer than the 512 the model was trained for: expect worse text beyond
	// true 300 logits
}

// What a model needs is known from its shape.
func ExampleFile_Fit() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	file, err := terrace.OpenFile(context.Background(), path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	fit, err := file.Fit(terrace.Options{}, 1<<30)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(fit.KVBytesPerToken, "bytes a token,", fit.LongestContext, "tokens")
	// Output: 256 bytes a token, 512 tokens
}

// A timeline shows what each resource did when, in https://ui.perfetto.dev.
func ExampleNewTimeline() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	line := terrace.NewTimeline(&b)
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{Timeline: line})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := terrace.Text(m.Generate(ctx, "Once upon a time", terrace.Settings{MaxTokens: 8, IgnoreEnd: true})); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(m.Close(), line.Close()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(json.Valid(b.Bytes()), bytes.Contains(b.Bytes(), []byte(`"ph":"X"`)))
	// Output: true true
}

// An encoder's embeddings have length 1: their product is the cosine.
func ExampleOpenEncoder() {
	e, err := terrace.OpenEncoder(context.Background(), "minilm:l6", terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	vectors, err := e.Embed(context.Background(), "a cat", "a kitten")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(vectors), e.Dim())
}

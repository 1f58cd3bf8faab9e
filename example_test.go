package terrace_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"terrace"
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

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
	e, err := terrace.OpenEncoder(context.Background(), "model/bert/testdata/tiny", terrace.Options{}) // or "minilm:l6"
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	vectors, err := e.Embed(context.Background(), "a cat", "a cat", "the engine")
	if err != nil {
		log.Fatal(err)
	}
	cosine := func(a, b []float32) (sum float32) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	fmt.Println(len(vectors[0]) == e.Dim(), cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2]))
	// Output: true true
}

// template is a chat template for the random model, which has none of its own.
const template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"

// A conversation goes on with what was answered. With a store the second turn does not read the first again.
func ExampleReply() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{Template: template, Store: []string{"host=16MiB"}})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	talk := []terrace.Message{{Role: "system", Content: "You answer in a word, whatever it is that you are asked, and you never explain it."}}
	for _, question := range []string{"Is the sky blue?", "And at night?"} {
		talk = append(talk, terrace.Message{Role: "user", Content: question})
		reply, err := terrace.Reply(m.Chat(ctx, talk, terrace.Settings{Format: terrace.OneOf("yes", "no")}))
		if err != nil {
			log.Fatal(err)
		}
		talk = append(talk, reply)
	}
	for piece, err := range m.Chat(ctx, talk, terrace.Settings{MaxTokens: 1}) {
		if err != nil {
			log.Fatal(err)
		}
		if piece.Use != nil {
			fmt.Println(len(talk), "messages,", piece.Use.CachedTokens, "tokens of them from the store")
		}
	}
	// Output: 5 messages, 128 tokens of them from the store
}

// The model calls a function; what it returned is the next message.
func ExampleTool() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{Template: template, Context: 1000})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	weather := terrace.Tool{Name: "weather", Description: "The weather of a city.", Parameters: `{"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"], "additionalProperties": false}`}
	talk := []terrace.Message{{Role: "user", Content: "How is the weather in Paris?"}}
	reply, err := terrace.Reply(m.Chat(ctx, talk, terrace.Settings{Tools: []terrace.Tool{weather}, Choice: "weather"})) // Choice "" lets the model decide
	if err != nil {
		log.Fatal(err)
	}
	talk = append(talk, reply)
	for _, call := range reply.Calls {
		fmt.Println(call.Name, call.Arguments)
		talk = append(talk, terrace.Message{Role: "tool", CallID: call.ID, Content: `{"celsius": 21}`})
	}
	if _, err := terrace.Reply(m.Chat(ctx, talk, terrace.Settings{Tools: []terrace.Tool{weather}, Choice: "none", MaxTokens: 20})); err != nil {
		log.Fatal(err)
	}
	// Output: weather {"city": "Paris"}
}

// An answer that is JSON of a schema.
func ExampleSchema() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	format := terrace.Schema(`{"type": "object", "properties": {"blue": {"type": "boolean"}}, "required": ["blue"], "additionalProperties": false}`)
	text, err := terrace.Text(m.Generate(ctx, "Is the sky blue? As JSON: ", terrace.Settings{Format: format}))
	if err != nil {
		log.Fatal(err)
	}
	var sky struct{ Blue *bool }
	fmt.Println(json.Unmarshal([]byte(text), &sky) == nil, sky.Blue != nil)
	// Output: true true
}

// A grammar in llama.cpp's form.
func ExampleGrammar() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	text, err := terrace.Text(m.Generate(ctx, "A terrace is ", terrace.Settings{Format: terrace.Grammar(`root ::= "a " ("step") " of a slope."`)}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: a step of a slope.
}

// What the model gave each token, and what else it might have said.
func ExampleLogprob() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	for piece, err := range m.Generate(ctx, "Once upon a time", terrace.Settings{MaxTokens: 3, IgnoreEnd: true, Greedy: true, Logprobs: true, Top: 2}) {
		if err != nil {
			log.Fatal(err)
		}
		for _, t := range piece.Logprobs {
			fmt.Println(t.Token == t.Top[0].Token, t.Logprob == t.Top[0].Logprob, t.Top[0].Logprob >= t.Top[1].Logprob)
		}
	}
	// Output:
	// true true true
	// true true true
	// true true true
}

// How much of a long prompt is read.
func ExampleSettings_progress() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	m, err := terrace.Open(ctx, path, terrace.Options{Chunk: 32})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	var last, all int
	settings := terrace.Settings{MaxTokens: 1, Progress: func(read, total int) { last, all = read, total }}
	if _, err := terrace.Text(m.Generate(ctx, "A prompt of some tokens, which are read before the first of the answer comes.", settings)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(last == all, all > 60)
	// Output: true true
}

// An answer ends with its context, or where its loop is left.
func ExampleModel_Generate_cancel() {
	path, err := tiny()
	if err != nil {
		log.Fatal(err)
	}
	m, err := terrace.Open(context.Background(), path, terrace.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, err := range m.Generate(ctx, "Once upon a time", terrace.Settings{IgnoreEnd: true}) {
		if err != nil {
			fmt.Println(errors.Is(err, context.Canceled))
			break
		}
		cancel() // a button, a deadline, a client that has left
	}
	// Output: true
}

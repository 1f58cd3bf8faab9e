package serve

import (
	"context"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"terrace/engine"
)

// newBrowser opens a page of a server in a headless browser; the test is skipped where there is none.
func newBrowser(t *testing.T, url string) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no browser (chromium, google-chrome, headless-shell) is installed: the page was not tried")
	}
	o := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(time.Minute))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), o...)
	t.Cleanup(stop)
	ctx, done := chromedp.NewContext(ctx)
	t.Cleanup(done)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx, chromedp.Navigate(url)); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// TestPageInBrowser talks to the page as people do: by keyboard, with a key, under two policies, on a phone, stopping and
// answering again.
func TestPageInBrowser(t *testing.T) {
	b := newBench(t, engine.Options{}, Options{Keys: []string{"a secret key"}})
	var held atomic.Pointer[chan struct{}] // steps wait until it is closed
	b.loop.crash = func(string) {
		if gate := held.Load(); gate != nil {
			<-*gate
		}
	}
	ctx := newBrowser(t, b.http.URL)
	holds := func(what, script string) {
		t.Helper()
		var ok bool
		err := chromedp.Run(ctx, chromedp.Poll(script, &ok, chromedp.WithPollingTimeout(time.Minute)))
		if err != nil || !ok {
			var page string
			_ = chromedp.Run(ctx, chromedp.Evaluate(`document.body.innerText`, &page))
			t.Fatalf("%s: %v; the page says:\n%s", what, err, page)
		}
	}
	do := func(actions ...chromedp.Action) {
		t.Helper()
		if err := chromedp.Run(ctx, actions...); err != nil {
			t.Fatal(err)
		}
	}
	holds("without a key it is asked for", `document.activeElement.id === "key" && document.querySelector("#status").textContent.includes("key")`)
	do(chromedp.SendKeys("#key", "a secret key"+kb.Tab, chromedp.ByID))
	holds("with the key the model is named", `document.querySelector("#model").textContent.startsWith("small")`)

	do(chromedp.SetValue("#max_tokens", "24", chromedp.ByID), chromedp.SetValue("#seed", "7", chromedp.ByID), chromedp.SendKeys("#text", "hello"+kb.Enter, chromedp.ByID))
	holds("an answer comes, with its facts", `document.querySelectorAll(".answer").length === 1 && document.querySelector("#stop").hidden && document.querySelector(".answer footer").textContent.includes("KV ")`)
	var first, second string
	do(chromedp.Text(".answer .body", &first, chromedp.ByQuery), chromedp.Click(".again", chromedp.ByQuery))
	holds("it is answered again", `document.querySelectorAll(".answer").length === 1 && document.querySelector("#stop").hidden && document.querySelector(".again") !== null`)
	do(chromedp.Text(".answer .body", &second, chromedp.ByQuery))
	if first != second {
		t.Errorf("one seed gave %q and %q", first, second)
	}

	do(chromedp.Click("#compare", chromedp.ByID), chromedp.SendKeys("#text", "a longer message for two policies"+kb.Enter, chromedp.ByID))
	holds("two policies answer side by side", `document.querySelectorAll(".answer").length === 3 && document.querySelector(".difference") !== null && document.querySelector(".difference").textContent.includes("KV ")`)
	do(chromedp.Click("#compare", chromedp.ByID))

	gate := make(chan struct{})
	release := sync.OnceFunc(func() { held.Store(nil); close(gate) })
	t.Cleanup(release)
	held.Store(&gate)
	do(chromedp.SetValue("#max_tokens", "400", chromedp.ByID), chromedp.SendKeys("#text", "go on"+kb.Enter, chromedp.ByID))
	holds("an answer is under way", `!document.querySelector("#stop").hidden`)
	do(chromedp.KeyEvent(kb.Escape))
	release()
	holds("Escape stops it", `document.querySelector("#stop").hidden`)

	do(chromedp.SetValue("#policyA", "no such policy", chromedp.ByID), chromedp.SendKeys("#text", "what?"+kb.Enter, chromedp.ByID))
	holds("a refusal is shown", `document.querySelector("#status").textContent.includes("policy")`)
	do(chromedp.Click("#clear", chromedp.ByID))
	holds("the conversation is empty again", `document.querySelectorAll(".answer, .mine").length === 0`)
	holds("the tiers are live", `document.querySelector("#live").textContent === "live" && document.querySelector("#terraces").textContent.includes("host")`)

	for _, width := range []int64{390, 1440} {
		do(chromedp.EmulateViewport(width, 844))
		holds("nothing is wider than the screen", `document.documentElement.scrollWidth <= innerWidth && document.querySelector("#send").getBoundingClientRect().right <= innerWidth`)
	}
	do(chromedp.EmulateViewport(390, 844), chromedp.Click("#showTiers", chromedp.ByID))
	holds("on a phone the tiers open over the talk", `getComputedStyle(document.querySelector("#tiers")).display === "block"`)
	do(chromedp.KeyEvent(kb.Escape))
	holds("and close", `getComputedStyle(document.querySelector("#tiers")).display === "none"`)
	var light, dark string
	colour := `getComputedStyle(document.body).backgroundColor`
	do(chromedp.Click("#theme", chromedp.ByID), chromedp.Evaluate(colour, &light), chromedp.Click("#theme", chromedp.ByID), chromedp.Evaluate(colour, &dark))
	if light == dark {
		t.Errorf("light and dark are both %s", light)
	}
}

// TestPageFoldsThoughts: what a model thinks is folded before its answer, and later messages do not repeat it.
func TestPageFoldsThoughts(t *testing.T) {
	b := newThinkingBench(t, Options{})
	ctx := newBrowser(t, b.http.URL)
	var folded bool
	err := chromedp.Run(ctx, chromedp.SetValue("#max_tokens", "24", chromedp.ByID), chromedp.SendKeys("#text", "hello"+kb.Enter, chromedp.ByID),
		chromedp.Poll(`document.querySelector("#stop").hidden && document.querySelector(".answer details.thought:not([open]) summary").textContent.includes("characters")`, &folded, chromedp.WithPollingTimeout(time.Minute)))
	if err != nil || !folded {
		t.Errorf("no folded thought: %v", err)
	}
}

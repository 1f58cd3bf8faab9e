package clock

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestEventsRunOneAtATime: tasks take turns in one order; the clock moves when all of them wait, to the nearest time.
func TestEventsRunOneAtATime(t *testing.T) {
	var want []string
	for range 50 {
		c, ctx := NewEvents(), context.Background()
		var log []string
		say := func(text string) { log = append(log, fmt.Sprint(text, " ", int(c.Now()))) } // a race, if two ran at once
		first, second := make(chan struct{}), make(chan struct{})
		Go(c, func() {
			defer close(first)
			say("a")
			_ = c.Sleep(ctx, 20)
			say("a")
		})
		Go(c, func() {
			defer close(second)
			say("b")
			_ = c.Sleep(ctx, 10)
			say("b")
			Wait(c, first, nil)
			say("b")
		})
		say("main")
		_ = c.Sleep(ctx, 15)
		say("main")
		Wait(c, second, nil)
		say("end")
		if want == nil {
			want = []string{"main 0", "a 0", "b 0", "b 10", "main 15", "a 20", "b 20", "end 20"}
		}
		if !slices.Equal(log, want) {
			t.Fatalf("%v, want %v", log, want)
		}
	}
}

// TestEventsEndWithTheContext: a sleeper whose context ends goes on at that time; where every task waits for another it is said.
func TestEventsEndWithTheContext(t *testing.T) {
	c := NewEvents()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	c.Go(func() {
		defer close(done)
		err = c.Sleep(ctx, time.Hour)
	})
	_ = c.Sleep(context.Background(), time.Minute)
	cancel()
	c.Wait(done)
	if err == nil || c.Now() != time.Minute || !c.Modelled() {
		t.Errorf("at %v: %v", c.Now(), err)
	}
	bounded, end := WithTimeout(context.Background(), c, time.Second)
	defer end()
	_ = c.Sleep(context.Background(), time.Hour)
	if bounded.Err() != nil {
		t.Error("an Events clock ends what takes long by the model")
	}
	defer func() {
		if recover() == nil {
			t.Error("waiting for nobody goes on")
		}
	}()
	c.Wait(make(chan struct{}))
}

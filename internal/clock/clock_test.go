package clock

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestVirtualWakesInOrder(t *testing.T) {
	c, ctx := NewVirtual(), context.Background()
	woken := make(chan time.Duration, 3)
	for i, d := range []time.Duration{30, 10, 20} {
		go func() {
			if err := c.Sleep(ctx, d); err != nil {
				t.Error(err)
			}
			woken <- d
		}()
		if err := c.AwaitSleepers(ctx, i+1); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []time.Duration{10, 20, 30} {
		if !c.AdvanceToNext() || c.Now() != want {
			t.Fatalf("at %v, want %v", c.Now(), want)
		}
		if got := <-woken; got != want {
			t.Fatalf("sleeper of %v woke at %v", got, want)
		}
	}
	if c.AdvanceToNext() {
		t.Error("a sleeper is left")
	}
	c.Advance(5)
	if c.Now() != 35 || !c.Modelled() {
		t.Errorf("now %v, want 35", c.Now())
	}
}

func TestSleepEndsWithTheContext(t *testing.T) {
	v := NewVirtual()
	for name, c := range map[string]Clock{"real": Real(), "virtual": v} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- c.Sleep(ctx, time.Hour) }()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: asleep under an ended context: %v", name, err)
		}
	}
	if v.AdvanceToNext() {
		t.Error("a cancelled sleeper is still listed")
	}
	if c := Real(); c.Sleep(context.Background(), time.Microsecond) != nil || c.Now() <= 0 || c.Modelled() {
		t.Error("the real clock stands")
	}
}

// TestJumpingAdvancesItself: sleepers return at once and the clock adds their times up; an ended context and a time that is not
// above 0 leave it as it is.
func TestJumpingAdvancesItself(t *testing.T) {
	c, ctx := NewJumping(), context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, s := range []struct {
		ctx  context.Context
		d    time.Duration
		want time.Duration
	}{{ctx, time.Hour, time.Hour}, {ctx, -time.Hour, time.Hour}, {ended, time.Hour, time.Hour}, {ctx, time.Minute, time.Hour + time.Minute}} {
		if err := c.Sleep(s.ctx, s.d); !errors.Is(err, s.ctx.Err()) || c.Now() != s.want {
			t.Errorf("slept %v: at %v, want %v: %v", s.d, c.Now(), s.want, err)
		}
	}
	if !c.Modelled() {
		t.Error("measured")
	}
}

// TestSkippingWaitsForNobody: an hour's sleep takes no time and shows; work shows too, on the machine's clock.
func TestSkippingWaitsForNobody(t *testing.T) {
	c, before := NewSkipping(), Real().Now()
	if err := c.Sleep(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	now, after := c.Now(), Real().Now()
	if now < before+time.Hour || now > after+time.Hour || after-before > time.Hour/2 {
		t.Errorf("%v after an hour from %v on, the machine's %v", now, before, after)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Sleep(ended, time.Hour); !errors.Is(err, context.Canceled) || c.Now() > after+2*time.Hour-time.Minute {
		t.Errorf("asleep under an ended context: %v", err)
	}
	stands := c.Now()
	var worked time.Duration
	c.Untimed(func() {
		for begun := Real().Now(); worked < 3*time.Millisecond; worked = Real().Now() - begun {
			continue
		}
	})
	if d := c.Now() - stands; d < 0 || d >= worked {
		t.Errorf("work of %v that is not timed took %v", worked, d)
	}
	if err := c.Sleep(t.Context(), -time.Hour); err != nil || c.Now() < now || c.Modelled() {
		t.Error("it went back, or is modelled")
	}
}

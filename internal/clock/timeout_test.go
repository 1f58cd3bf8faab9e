package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVirtual()
		ctx, cancel := WithTimeout(t.Context(), v, time.Minute)
		defer cancel()
		synctest.Wait()
		v.Advance(59 * time.Second)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("it ends before its time")
		}
		v.Advance(time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("at its time: %v", context.Cause(ctx))
		}
		early, cancel := WithTimeout(t.Context(), v, time.Minute)
		cancel()
		synctest.Wait()
		if early.Err() == nil || v.AdvanceToNext() {
			t.Error("one that was cancelled goes on")
		}
		real, cancel := WithTimeout(t.Context(), Real(), time.Minute)
		defer cancel()
		jumping, cancel := WithTimeout(t.Context(), NewJumping(), time.Minute)
		defer cancel()
		time.Sleep(time.Hour)
		if real.Err() == nil || jumping.Err() != nil {
			t.Errorf("after an hour: real %v, jumping %v", real.Err(), jumping.Err())
		}
	})
}

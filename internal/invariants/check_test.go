package invariants

import "testing"

func TestCheck(t *testing.T) {
	Check(true, "never")
	defer func() {
		if got := recover() != nil; got != Enabled {
			t.Errorf("a broken invariant panicked: %v, checks are on: %v", got, Enabled)
		}
	}()
	Check(false, "%d is not %d", 1, 2)
}

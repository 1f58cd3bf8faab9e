package vulkan

import "testing"

// TestBeside: copies have a queue that does nothing else where there is one, else a second one, else the first.
func TestBeside(t *testing.T) {
	family := func(flags, count uint32) queueFamily { return queueFamily{flags: flags, count: count} }
	const all, computes = queueGraphics | queueCompute | queueTransfer, queueCompute | queueTransfer
	for _, c := range []struct {
		families          []queueFamily
		of, family, index int
	}{
		{[]queueFamily{family(all, 16), family(queueTransfer, 2), family(computes, 8)}, 0, 1, 0},
		{[]queueFamily{family(all, 1), family(computes, 4), family(queueTransfer|8, 1)}, 0, 2, 0}, // sparse binding too
		{[]queueFamily{family(queueGraphics, 1), family(all, 4)}, 1, 1, 1},
		{[]queueFamily{family(all, 1)}, 0, 0, 0},
		{[]queueFamily{family(all, 1), family(queueTransfer, 0)}, 0, 0, 0},
	} {
		if f, i := beside(c.families, c.of); f != c.family || i != c.index {
			t.Errorf("%+v: queue %d of family %d, want %d of %d", c.families, i, f, c.index, c.family)
		}
	}
}

// TestStream: what is started has arrived once it was waited for, more can follow then and not before, and commands see it.
func TestStream(t *testing.T) {
	d, err := cpu(t).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	up, err := d.Staging(64)
	if err != nil {
		t.Fatal(err)
	}
	on, err := d.Allocate(256)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		copy(up.Bytes, text)
		for _, err := range []error{s.Copy(on, 8, up, 0, 3), s.Start()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Copy(on, 8, up, 0, 3); err == nil || !s.Flying() {
			t.Errorf("a copy was recorded beside others on their way: %v, %v", err, s.Flying())
		}
		for _, err := range []error{s.Wait(), s.Wait(), s.Start(), d.Barrier(), d.Copy(up, 32, on, 8, 3), d.Submit()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := string(up.Bytes[32:35]); got != text || s.Flying() {
			t.Errorf("%q, want %q; on its way: %v", got, text, s.Flying())
		}
	}
	if err := s.Copy(on, 250, up, 0, 18); err == nil {
		t.Error("a copy past the end was recorded")
	}
}

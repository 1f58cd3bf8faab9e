package csdshim

import "terrace/csdshim/flash"

// Faults are what a drive does wrong, for tests.
type Faults struct{}

type injector struct{}

func newInjector(Faults) *injector { return &injector{} }

func (*injector) corrupt(*Drive, []flash.Item, []uint32) {}

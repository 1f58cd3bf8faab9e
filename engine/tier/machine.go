package tier

import (
	"terrace/internal/clock"
	"terrace/internal/vfs"
	"terrace/model"
	"terrace/offload"
)

// Machine is what an engine runs on; the zero value is this machine.
type Machine struct {
	Clock clock.Clock                       // what transfers and waits run on; nil = clock.Real
	Disk  vfs.FS                            // file system of an ssd tier; nil = the system's
	Wrap  func(model.Backend) model.Backend // puts something between the engine and its backend; nil = nothing
	Dial  offload.Dial                      // how drives of csd tiers are reached; nil = by their sockets
	Host  *offload.HostRates                // what this machine does in a second, for policies that balance it with a drive; nil = engine.Options.Host

	// Scored hears what a policy that ranks tokens by one score each ranks a layer's by, in a decode step: one score a cached token, in
	// cache order, valid during the call. Of what a drive scores it hears nothing; several texts may call at once. nil = nobody listens.
	Scored func(layer int, scores []float32)
}

// Wrapped is a backend behind Wrap.
func (m Machine) Wrapped(b model.Backend) model.Backend {
	if m.Wrap == nil {
		return b
	}
	return m.Wrap(b)
}

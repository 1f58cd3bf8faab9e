package share

import "time"

// Options of sharing.
type Options struct {
	URL     string        // nats://HOST[:PORT], several separated by commas
	AckWait time.Duration // after which a silent worker's job is handed to another; 0 = 30 s
	Notice  func(string)  // told about reconnects and waiting; nil = not
}

func (o *Options) setDefaults() {
	if o.AckWait <= 0 {
		o.AckWait = 30 * time.Second
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
}

package share

import "errors"

// ErrServer marks a NATS server that cannot be reached or has no JetStream.
var ErrServer = errors.New("no NATS JetStream server")

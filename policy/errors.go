package policy

import "errors"

var (
	// ErrUnknown is wrapped where a policy name is not registered; the message lists the known ones.
	ErrUnknown = errors.New("unknown policy")
	// ErrParam is wrapped by every error about a policy's parameters: unknown key, bad value, contradiction.
	ErrParam = errors.New("bad policy parameter")
	// ErrClash is wrapped where policies joined by + both provide a capability of which there can be one.
	ErrClash = errors.New("policies cannot be combined")
	// ErrModel is wrapped where a policy cannot work on the model given (too few layers, no decomposition, ...).
	ErrModel = errors.New("policy does not fit the model")
	// ErrRanks is wrapped where ranks that were stored with a context are no order of its tokens.
	ErrRanks = errors.New("ranks are no order of the tokens")
	// ErrInstance is wrapped by every error about contexts and tiers to place: a size, a speed, a quality that cannot be.
	ErrInstance = errors.New("bad placement instance")
	// ErrNoRoom is wrapped where contexts do not fit the tiers, however they are compressed.
	ErrNoRoom = errors.New("no room on the tiers")
)

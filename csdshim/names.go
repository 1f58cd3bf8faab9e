package csdshim

import (
	"terrace/csdshim/hardware"
	"terrace/csdshim/wire"
)

// Names of the protocol that callers need.
type (
	// Shape says what a sequence's groups are.
	Shape = wire.Shape
	// Codes says what the drive scores with.
	Codes = wire.Codes
	// Query is what a layer's tokens are scored with.
	Query = wire.Query
	// Block is a score block.
	Block = wire.Block
	// Identity is what a drive says about itself.
	Identity = wire.Identity
	// Timing is what one request took, modelled and measured.
	Timing = wire.Timing
	// Stats are a drive's totals.
	Stats = wire.Stats
)

// What a drive can score.
const (
	CodesNone = wire.CodesNone
	CodesInt8 = wire.CodesInt8
	CodesInt4 = wire.CodesInt4
	CodesHalf = wire.CodesHalf

	CodesProduct = wire.CodesProduct
)

// GroupTokens is the number of tokens of a group.
const GroupTokens = wire.GroupTokens

// Profile is the hardware that a drive mimics.
type Profile = hardware.Profile

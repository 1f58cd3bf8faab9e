package wire

// Timing is what one request took. Modelled times follow from the profile, measured ones from a clock on the wall; with
// the real clock a reply waits until its modelled time is over, so that measured ≥ modelled.
type Timing struct {
	// Modelled, nanoseconds.
	QueueNs  uint64 // waiting for channels, engine or link that others used
	NANDNs   uint64 // reading or programming flash
	EngineNs uint64 // scoring
	LinkNs   uint64 // crossing the link to the host
	TotalNs  uint64 // from the request's arrival to the last byte at the host; parts overlap

	MeasuredNs uint64 // on the wall clock: from the request's arrival to its last byte handed to the socket

	// Bytes by the model's account.
	NANDBytes uint64 // pages read or programmed
	ScanBytes uint64 // key codes scored
	LinkBytes uint64 // payload to the host; score blocks count 4 bytes a token
}

func (t *Timing) fields() []*uint64 {
	return []*uint64{&t.QueueNs, &t.NANDNs, &t.EngineNs, &t.LinkNs, &t.TotalNs, &t.MeasuredNs, &t.NANDBytes, &t.ScanBytes, &t.LinkBytes}
}

// Append adds the message's bytes to dst.
func (t Timing) Append(dst []byte) []byte { return appendFields(dst, t.fields()) }

// ParseTiming reads the timing in front of a TypeDone frame's payload and returns the rest.
func ParseTiming(b []byte) (t Timing, rest []byte, err error) {
	d := decoder{b: b}
	for _, f := range t.fields() {
		*f = d.u64()
	}
	rest = d.b
	d.b = nil
	return t, rest, d.end("timing")
}

func appendFields(dst []byte, fields []*uint64) []byte {
	e := encoder{dst}
	for _, f := range fields {
		e.u64(*f)
	}
	return e.b
}

// Stats are a drive's totals since it was started; bytes unless the name says otherwise.
type Stats struct {
	CapacityBytes, UsedBytes, PeakBytes uint64 // whole flash pages
	DRAMBytes, DRAMUsedBytes            uint64 // key codes in the drive's memory
	Sequences, Groups                   uint64

	GroupsWritten, GroupsRead, TokensGathered, TokensScored, ScoreBlocks uint64 // counts
	LinkInBytes, LinkOutBytes                                            uint64 // payloads
	PagesRead, PagesProgrammed, PagesMoved, BlocksErased                 uint64 // counts; moved by garbage collection

	// Modelled: time that resources were busy, nanoseconds.
	ModelNANDNs, ModelEngineNs, ModelLinkNs, ModelClockNs uint64
	// Measured on the wall: nanoseconds spent in scoring and in file I/O, and since the start.
	MeasuredEngineNs, MeasuredIONs, UptimeNs uint64

	Life Life
}

// Life is what a drive's flash has done over the life of its folder, and what lies there now.
type Life struct {
	ReadByChannel                                    []uint64 // pages
	TokenProgrammed, EmbeddingProgrammed, Moved      uint64   // pages: of the token copy and of groups, of the embedding copy, by garbage collection
	Valid                                            uint64   // pages
	Blocks, FreeBlocks, Erases, ErasesMin, ErasesMax uint64   // erases of all blocks, of the one with fewest and most
	// What tokens that wait for their group take of the drive's memory: now, at most since the start, and at most ever.
	GroupBufferBytes, GroupBufferPeak, GroupBufferMax uint64
}

func (l *Life) fields() []*uint64 {
	return []*uint64{&l.TokenProgrammed, &l.EmbeddingProgrammed, &l.Moved, &l.Valid, &l.Blocks, &l.FreeBlocks, &l.Erases, &l.ErasesMin, &l.ErasesMax,
		&l.GroupBufferBytes, &l.GroupBufferPeak, &l.GroupBufferMax}
}

// maxChannels bounds what a reply can make the reader allocate.
const maxChannels = 1 << 10

func (s *Stats) fields() []*uint64 {
	return []*uint64{&s.CapacityBytes, &s.UsedBytes, &s.PeakBytes, &s.DRAMBytes, &s.DRAMUsedBytes, &s.Sequences, &s.Groups,
		&s.GroupsWritten, &s.GroupsRead, &s.TokensGathered, &s.TokensScored, &s.ScoreBlocks, &s.LinkInBytes, &s.LinkOutBytes,
		&s.PagesRead, &s.PagesProgrammed, &s.PagesMoved, &s.BlocksErased,
		&s.ModelNANDNs, &s.ModelEngineNs, &s.ModelLinkNs, &s.ModelClockNs, &s.MeasuredEngineNs, &s.MeasuredIONs, &s.UptimeNs}
}

// Append adds the message's bytes to dst.
func (s Stats) Append(dst []byte) []byte {
	e := encoder{appendFields(appendFields(dst, s.fields()), s.Life.fields())}
	e.u32(uint32(len(s.Life.ReadByChannel)))
	for _, n := range s.Life.ReadByChannel {
		e.u64(n)
	}
	return e.b
}

// ParseStats reads what follows the timing in the reply to a TypeStats frame.
func ParseStats(b []byte) (s Stats, err error) {
	d := decoder{b: b}
	for _, f := range append(s.fields(), s.Life.fields()...) {
		*f = d.u64()
	}
	n := d.index()
	if n > maxChannels {
		return s, malformed("stats of %d channels", n)
	}
	for range n {
		s.Life.ReadByChannel = append(s.Life.ReadByChannel, d.u64())
	}
	return s, d.end("stats")
}

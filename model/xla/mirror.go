package xla

import (
	"fmt"
	"slices"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/model"
)

// tailSlots is the size of the block that takes the tokens of decoding: writing copies a block, so the newest tokens have a
// small one, which joins the large one when it is full. A step then copies 1/tailSlots of the cache on average.
const tailSlots = 64

// mirror is the device's copy of the keys and values that one sequence's views of a layer show: tokens [0, count-tailed) of
// each head in the large block, the tailed newest in the tail. pages say which content it copied.
type mirror struct {
	layer       int
	large, tail block
	pages       [][]seenPage // a KV head
	count       []int        // tokens a KV head
	tailed      int
	resident    bool  // stays; otherwise freed after the call that needed it
	bytes       int64 // counted against the budget
	used        int64 // the pass that needed it last
}

// seenPage is a page's version and the tokens of it that were copied.
type seenPage struct {
	version uint64
	tokens  int
}

// mirrorKey names a mirror: the sequence and the layer.
type mirrorKey struct {
	cache uint64
	layer int
}

func (m *mirror) free() {
	m.large.free()
	m.tail.free()
}

// agree is how many tokens of a head's view are those of the mirror, from the first on.
func (m *mirror) agree(g int, v *attention.View) int {
	n := 0
	for i, p := range m.pages[g] {
		if i >= len(v.Pages) || v.Pages[i].Version != p.version || p.version == 0 {
			return n
		}
		n += min(p.tokens, v.Pages[i].N)
		if v.Pages[i].N < p.tokens {
			return n
		}
	}
	return n
}

// note remembers what the mirror now holds.
func (m *mirror) note(views []attention.View) {
	for g := range views {
		m.pages[g] = m.pages[g][:0]
		for i := range views[g].Pages {
			p := &views[g].Pages[i]
			m.pages[g] = append(m.pages[g], seenPage{p.Version, p.N})
		}
		m.count[g] = views[g].Tokens()
	}
}

// known reports whether pages can be told apart by their versions, and lie in one layout.
func known(views []attention.View) bool {
	for g := range views {
		if views[g].Cache == 0 || len(views[g].Recent) > 0 {
			return false
		}
		for i := range views[g].Pages {
			if views[g].Pages[i].Version == 0 {
				return false
			}
		}
	}
	return true
}

// sync makes the mirror of a layer equal to the views of a sequence whose rows are those from at on of the pass. Where the
// views only grew, the new tokens are appended; otherwise everything from the first changed token on goes up.
func (b *backend) sync(layer int, s *attention.Seq, at int) (*mirror, error) {
	key := mirrorKey{s.Views[0].Cache, layer}
	m := b.mirrors[key]
	if r := b.uploading[key]; r != nil {
		if err := b.arrived(key, r); err != nil {
			return nil, err
		}
		m = r.m
	}
	if m == nil {
		m = &mirror{layer: layer, pages: make([][]seenPage, len(s.Views)), count: make([]int, len(s.Views))}
	}
	m.used = b.passes
	same, unchanged, fresh := 1<<30, true, s.Views[0].Tokens()-m.count[0]
	for g := range s.Views {
		n, agree := s.Views[g].Tokens(), m.agree(g, &s.Views[g])
		same = min(same, agree)
		unchanged = unchanged && agree == m.count[g] && agree == n
		if agree != m.count[g] || n-agree != fresh {
			fresh = 0
		}
	}
	var err error
	switch {
	case unchanged:
	case fresh > 0:
		err = b.extend(m, s, fresh, at)
	default:
		err = b.reload(m, s, same)
	}
	if err == nil {
		m.note(s.Views)
		err = b.settle(key, m)
	}
	if err != nil {
		b.drop(key, m)
		return nil, err
	}
	return m, nil
}

// extend appends the newest tokens, fresh of them in each head.
func (b *backend) extend(m *mirror, s *attention.Seq, fresh, at int) error {
	rows, even := roundUp(fresh, 1), slices.Min(m.count) == slices.Max(m.count)
	late := rows < tailSlots && !m.large.absent() // they go to the tail
	switch {
	case late && m.tailed+rows <= tailSlots:
	case !even:
		return b.reload(m, s, slices.Min(m.count)-m.tailed)
	case m.tailed > 0:
		if err := b.fold(m); err != nil {
			return err
		}
	}
	add, err := b.newRows(m.layer, s, fresh, at)
	if err != nil {
		return err
	}
	defer add.free()
	if late {
		if m.tail.absent() {
			if m.tail, err = b.empty(m.layer, tailSlots); err != nil {
				return err
			}
		}
		err = b.write(m.layer, &m.tail, tailSlots, m.tailed, &add)
		m.tailed += fresh
		return err
	}
	have := m.count[0]
	return b.write(m.layer, &m.large, max(m.large.slots(), tokenBucket(have+rows)), have, &add)
}

// newRows are the newest tokens of each view: as Project left them on the device, or read from the pages.
func (b *backend) newRows(layer int, s *attention.Seq, fresh, at int) (source, error) {
	if from, ok := b.projected(layer, s, fresh, at); ok {
		c := b.call(layer, len(b.projectedPos))
		c.positions(&model.Pass{Pos: b.projectedPos, Len: b.projectedLen})
		return source{k: b.k[b.turn].h.on, v: b.v[b.turn].h.on, pos: c.operands[0], flat: true, at: from, rows: roundUp(fresh, 1)}, c.err
	}
	if err := await(s); err != nil {
		return source{}, err
	}
	t := b.newGathered(layer, roundUp(fresh, 1))
	for g := range s.Views {
		n := s.Views[g].Tokens()
		t.readRun(&b.reader, g, 0, &s.Views[g], n-fresh, n)
	}
	return b.uploadRows(layer, t)
}

// projected finds the newest tokens of the views among the rows that Project left on the device; pages of the
// device's type hold the same numbers. A sequence that is alone in the pass may attend with fewer rows than it projected.
func (b *backend) projected(layer int, s *attention.Seq, fresh, at int) (from int, ok bool) {
	if fresh != len(s.Pos) {
		at = 0
	}
	k, v := b.k[b.turn].h, b.v[b.turn].h
	if b.projectedLayer != layer || k == nil || k.wrote || v.wrote || at+fresh > len(b.projectedPos) {
		return 0, false
	}
	if fresh != 1 && roundUp(fresh, 1) != k.on.shape.Dim(0) {
		return 0, false // a part of the rows that is no bucket
	}
	want := kvpage.F32
	if b.dtype == model.BFloat16 {
		want = kvpage.BF16
	}
	pos := make([]int32, fresh)
	for g := range s.Views {
		v := &s.Views[g]
		if v.Layout.K != want || v.Layout.V != want {
			return 0, false
		}
		if positions(pos, v, v.Tokens()-fresh); !slices.Equal(pos, b.projectedPos[at:at+fresh]) {
			return 0, false
		}
	}
	return at, true
}

// uploadRows uploads what was gathered of a layer.
func (b *backend) uploadRows(layer int, t *gathered) (up source, err error) {
	heads := b.m.Layer[layer].KVHeads
	if up.k, err = b.uploadStored(layer, t.k, heads, t.bucket, t.dk); err == nil {
		if up.v, err = b.uploadStored(layer, t.v, heads, t.bucket, t.dv); err == nil {
			up.pos, err = uploadCounted(b.device, "kv", layer, t.pos, heads, t.bucket)
		}
	}
	if err != nil {
		up.free()
	}
	return up, err
}

// uploadStored uploads keys or values in the type they lie in on the device.
func (b *backend) uploadStored(layer int, x []float32, dims ...int) (operand, error) {
	if b.dtype == model.BFloat16 {
		return uploadCounted(b.device, "kv", layer, rounded(x), dims...)
	}
	return uploadCounted(b.device, "kv", layer, x, dims...)
}

// fold moves the tail into the large block; heads hold equally many tokens.
func (b *backend) fold(m *mirror) error {
	start := m.count[0] - m.tailed
	err := b.write(m.layer, &m.large, max(m.large.slots(), tokenBucket(start+tailSlots)), start, &source{k: m.tail.k, v: m.tail.v, pos: m.tail.pos})
	m.tail.free()
	m.tailed = 0
	return err
}

// reload uploads the tokens from a number on, of every head, and empties the tail.
func (b *backend) reload(m *mirror, s *attention.Seq, from int) error {
	if err := await(s); err != nil {
		return err
	}
	views := s.Views
	had, most := 0, 1
	for g := range views {
		had, most = max(had, m.count[g]-m.tailed), max(most, views[g].Tokens())
		from = min(from, m.count[g]-m.tailed)
	}
	from = max(from, 0)
	m.tail.free()
	m.tailed = 0
	rows := tokenBucket(max(most, had) - from) // slots of tokens that are gone are overwritten
	t := b.newGathered(m.layer, rows)
	for g := range views {
		if n := views[g].Tokens(); n > from {
			t.readRun(&b.reader, g, 0, &views[g], from, n)
		}
	}
	up, err := b.uploadRows(m.layer, t)
	if err != nil {
		return err
	}
	defer up.free()
	if from == 0 {
		m.large.free()
	}
	return b.write(m.layer, &m.large, max(m.large.slots(), tokenBucket(from+rows)), from, &up)
}

// settle decides whether a mirror stays: beside those that stay there must be room for two more of its size, which are
// streamed through, one while the other is computed with.
func (b *backend) settle(key mirrorKey, m *mirror) error {
	counts, need := &b.device.counts, b.blockBytes(m.layer, m.large.slots()+m.tail.slots())
	counts.KVBytes += need - m.bytes
	m.bytes = need
	for !b.room(2*need) && b.forgetOldest(m, b.passes-1) {
	}
	for !b.room(0) && (b.fallBack() || b.forgetOldest(m, b.passes+1)) {
	}
	m.resident = b.room(2 * need)
	if counts.KVPeakBytes = max(counts.KVPeakBytes, counts.KVBytes); !b.room(0) {
		return fmt.Errorf("xla: %d bytes of keys and values on the device, %d of them for layer %d of one sequence, the budget is %d: %w",
			counts.KVBytes, need, key.layer, b.kvBudget, model.ErrDeviceMemory)
	}
	if m.resident {
		b.mirrors[key] = m
	} else {
		delete(b.mirrors, key)
	}
	return nil
}

// room reports whether more bytes fit beside what is on the device.
func (b *backend) room(more int64) bool {
	return b.kvBudget == 0 || b.device.counts.KVBytes+more <= b.kvBudget
}

// release frees a mirror that does not stay.
func (b *backend) release(m *mirror) {
	if !m.resident {
		m.free()
		b.device.counts.KVBytes -= m.bytes
		m.bytes = 0
	}
}

// forgetOldest frees the mirror, not mine, that was needed longest ago, before a pass.
func (b *backend) forgetOldest(mine *mirror, before int64) bool {
	var oldest mirrorKey
	var found *mirror
	for key, m := range b.mirrors {
		if m != mine && m.used < before && (found == nil || m.used < found.used) {
			oldest, found = key, m
		}
	}
	if found == nil {
		return false
	}
	b.drop(oldest, found)
	return true
}

func (b *backend) drop(key mirrorKey, m *mirror) {
	m.free()
	b.device.counts.KVBytes -= m.bytes
	delete(b.mirrors, key)
}

// DeviceUse implements model.KVKeeper.
func (b *backend) DeviceUse() model.DeviceUse {
	c := b.Counts()
	return model.DeviceUse{KVPeakBytes: c.KVPeakBytes, UpBytes: c.UploadBytes, DownBytes: c.DownloadBytes,
		Compute: c.RunTime, Up: c.UpTime, Down: c.DownTime}
}

// ForgetKV implements model.KVKeeper.
func (b *backend) ForgetKV(cache uint64) {
	b.SettleKV()
	for key, m := range b.mirrors {
		if key.cache == cache {
			b.drop(key, m)
		}
	}
}

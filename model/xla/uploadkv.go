package xla

import (
	"slices"

	"terrace/attention"
)

// kvUpload is a layer's mirror on its way to the device.
type kvUpload struct {
	m    *mirror
	done chan struct{}
	err  error
}

// UploadKV implements model.KVKeeper. There must be room beside what the layer before needs.
func (b *backend) UploadKV(layer int, views []attention.View) {
	if layer != b.m.Layer[layer].Owner {
		return // its owner's are there, or go up for the call
	}
	key := mirrorKey{views[0].Cache, layer}
	if b.mirrors[key] != nil || b.uploading[key] != nil || !known(views) {
		return
	}
	most := 0
	for g := range views {
		most = max(most, views[g].Tokens())
	}
	need := b.blockBytes(layer, tokenBucket(most))
	reserve, before := need, mirrorKey{key.cache, layer - 1}
	if b.mirrors[before] != nil || b.uploading[before] != nil {
		reserve = 0 // it is there
	}
	if most == 0 || !b.room(need+reserve) {
		return
	}
	still := slices.Clone(views) // tokens added later do not show
	for g := range still {
		still[g].Pages = slices.Clone(still[g].Pages)
	}
	m := &mirror{layer: layer, pages: make([][]seenPage, len(views)), count: make([]int, len(views)), bytes: need}
	m.note(still)
	counts := &b.device.counts
	counts.KVBytes += need
	counts.KVPeakBytes = max(counts.KVPeakBytes, counts.KVBytes)
	counts.Raised++
	r := &kvUpload{m: m, done: make(chan struct{})}
	b.uploading[key] = r
	go func() {
		defer close(r.done)
		r.err = b.lift(m, still, tokenBucket(most))
	}()
}

// lift uploads the views into the mirror's large block.
func (b *backend) lift(m *mirror, views []attention.View, slots int) (err error) {
	defer recovered(&err, "upload of keys and values")
	var reader attention.Reader
	t := b.newGathered(m.layer, slots)
	for g := range views {
		t.readRun(&reader, g, 0, &views[g], 0, views[g].Tokens())
	}
	up, err := b.uploadRows(m.layer, t)
	m.large = block{up.k, up.v, up.pos}
	return err
}

// arrived waits for a mirror and takes it from those on their way.
func (b *backend) arrived(key mirrorKey, r *kvUpload) error {
	<-r.done
	delete(b.uploading, key)
	if r.err != nil {
		b.drop(key, r.m)
	}
	return r.err
}

// fallBack frees a mirror that rises; false if there is none.
func (b *backend) fallBack() bool {
	for key, r := range b.uploading {
		if b.arrived(key, r) == nil {
			b.drop(key, r.m)
		}
		return true
	}
	return false
}

// SettleKV implements model.KVKeeper.
func (b *backend) SettleKV() {
	for b.fallBack() {
	}
}

// await waits until pages hold a sequence's newest tokens.
func await(s *attention.Seq) error {
	if s.Await == nil {
		return nil
	}
	return s.Await()
}

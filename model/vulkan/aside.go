package vulkan

import (
	"terrace/attention"
	"terrace/internal/vulkan"
)

// asideBytes is the staging memory of what goes up beside the commands; what finds no room there goes up before them.
const asideBytes = 32 << 20

// aside has tiles of the next layer go up while the device computes: UploadKV says which, Attend of the layer before records and starts them,
// beside its own commands, and whoever reads the tiles, or gives their memory to others, waits.
type aside struct {
	next    []upload
	stream  *vulkan.Stream // made at the first use
	staging *vulkan.Memory
	staged  int64
	lifting bool  // tiles go up aside
	open    bool  // some are recorded that were not started
	number  int64 // of the uploads that are recorded, or on their way
	bytes   int64 // that have gone up so
}

// upload is what one sequence's next layer shows.
type upload struct {
	layer int
	views []attention.View
}

// ahead starts the uploads of the next layer, if they have room beside this layer's tiles, which are brought up to date first.
func (s *mirrors) ahead(layer int, seqs []attention.Seq) error {
	next, both := s.aside.next, int64(0)
	if s.aside.next = nil; len(next) == 0 {
		return nil
	}
	for i := range seqs {
		both += s.need(layer, seqs[i].Views)
	}
	for _, u := range next {
		both += s.need(u.layer, u.views)
	}
	if s.budget > 0 && both > s.budget {
		return nil
	}
	for i := range seqs {
		if known(seqs[i].Views) {
			if _, err := s.sync(layer, seqs[i].Views); err != nil {
				return err
			}
		}
	}
	if err := s.aside.begin(s.r); err != nil {
		return err
	}
	defer func() { s.aside.lifting = false }()
	for _, u := range next {
		if _, err := s.sync(u.layer, u.views); err != nil {
			return err
		}
	}
	return s.aside.start()
}

// begin has the tiles that follow go up aside, behind those that are on their way.
func (a *aside) begin(r *recorder) (err error) {
	if a.stream == nil {
		if a.stream, err = r.d.Stream(); err == nil {
			a.staging, err = r.d.Staging(asideBytes)
		}
	}
	if err == nil {
		err = a.wait()
	}
	a.lifting, a.staged = err == nil, 0
	a.number++
	return deviceError(err)
}

// lift records the upload of a tile; false where there is no room. What was recorded before the first one is done first, since it may read what
// the tile's memory was.
func (a *aside) lift(r *recorder, to span, data []byte) (done bool, err error) {
	if !a.lifting || a.staged+int64(len(data)) > asideBytes {
		return false, nil
	}
	if !a.open && r.last != nothing {
		if err := r.submit(); err != nil {
			return false, err
		}
	}
	a.open = true
	copy(a.staging.Bytes[a.staged:], data)
	err = a.stream.Copy(to.m, to.at, a.staging, a.staged, int64(len(data)))
	a.staged += int64(len(data)+255) &^ 255
	a.bytes += int64(len(data))
	return true, deviceError(err)
}

// start has what was recorded go up.
func (a *aside) start() error {
	if !a.open {
		return nil
	}
	a.open = false
	return deviceError(a.stream.Start())
}

// wait waits for what was recorded, and for what is on its way.
func (a *aside) wait() error {
	if a.stream == nil {
		return nil
	}
	if err := a.start(); err != nil {
		return err
	}
	return deviceError(a.stream.Wait())
}

package offload

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"terrace/internal/clock"
	"terrace/internal/vfs"
)

// launch begins jobs, in one call to the engine.
func (s *SSD) launch(trs []*transfer) {
	ios := make([]*vfs.IO, 0, len(trs))
	s.mu.Lock()
	for _, tr := range trs {
		j := tr.job
		if j.bytes > 0 {
			j.stage, j.huge = s.stage.Take(j.bytes)
		}
		s.vector(j)
		s.begun(j)
		ios = append(ios, &j.io)
	}
	s.mu.Unlock()
	s.engine.Start(ios)
}

// begun counts an operation of the device. s.mu is held.
func (s *SSD) begun(j *ssdJob) {
	if j.io.Write {
		s.stats.Writes++
		s.stats.DeviceWriteBytes += j.tr.device
	} else {
		s.stats.Reads++
		s.stats.DeviceReadBytes += j.tr.device
	}
}

// vector lists a job's buffers in the order of the device: Data, staging, and what lies between records.
func (s *SSD) vector(j *ssdJob) {
	j.io.Bufs = j.io.Bufs[:0]
	at, stage := j.io.Off, j.stage
	for i := range j.segs {
		g := &j.segs[i]
		if between := int(g.off - at); between > 0 {
			filler := s.zeros
			if !j.io.Write {
				filler, stage = stage[:between:between], stage[between:]
			}
			j.io.Bufs = append(j.io.Bufs, filler[:between])
		}
		b := g.rec.Data
		if !g.direct {
			b, stage = stage[:g.size:g.size], stage[g.size:]
			switch {
			case j.io.Write && s.byRow:
				s.pack(int(g.rec.Key.Layer), b, g.rec.Data)
			case j.io.Write:
				clear(b[copy(b, g.rec.Data):])
			}
		}
		j.io.Bufs = append(j.io.Bufs, b)
		at = g.off + int64(g.size)
	}
}

// done is called by the engine when a job's operation has ended.
func (s *SSD) done(op *vfs.IO) {
	j := op.Owner.(*ssdJob)
	err := s.check(j)
	clock.Spend(j.tr.t.q.opt.Clock, clock.Take, j.tr.device)
	if j.tr.again(err) {
		s.mu.Lock()
		s.begun(j)
		s.mu.Unlock()
		s.engine.Start([]*vfs.IO{op})
		return
	}
	s.mu.Lock()
	for i := range j.segs {
		g := &j.segs[i]
		if op.Write {
			s.publish(g.seq, g.rec.Key, g.mark, g.sums, err != nil)
		}
		s.unpin(g.seq)
	}
	if err == nil && op.Write {
		s.stats.WrittenBytes += j.tr.bytes
	} else if err == nil {
		s.stats.ReadBytes += j.tr.bytes
	}
	s.settle(j)
	s.mu.Unlock()
	j.tr.ended(err)
}

// settle gives a job's staging memory back.
func (s *SSD) settle(j *ssdJob) {
	if j.stage != nil {
		s.stage.Give(j.stage, j.huge)
	}
	j.stage, j.huge = nil, false
	j.io.Bufs = nil
}

// abandon forgets a job that was planned and never launched.
func (s *SSD) abandon(tr *transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range tr.job.segs {
		g := &tr.job.segs[i]
		if tr.dir == 1 {
			s.publish(g.seq, g.rec.Key, g.mark, nil, true)
		}
		s.unpin(g.seq)
	}
}

// check tells whether a job's operation did what it should, and takes reads' bytes out of staging.
func (s *SSD) check(j *ssdJob) error {
	verb := "reading"
	if j.io.Write {
		verb = "writing"
	}
	first := j.segs[0].rec.Key
	if errors.Is(j.io.Err, vfs.ErrNoSpace) || errors.Is(j.io.Err, syscall.ENOSPC) { // a file system that cannot reserve
		return fmt.Errorf("offload: ssd %s: %s %v and %d more: %w: %w", s.opt.Dir, verb, first, len(j.segs)-1, j.io.Err, ErrFull)
	}
	if j.io.Err != nil {
		return fmt.Errorf("offload: ssd %s: %s %v and %d more: %w", s.opt.Dir, verb, first, len(j.segs)-1, j.io.Err)
	}
	if want := j.io.Bytes(); j.io.N != want {
		return fmt.Errorf("offload: ssd %s: %s %v and %d more: %d bytes, want %d: %w", s.opt.Dir, verb, first, len(j.segs)-1, j.io.N, want, io.ErrUnexpectedEOF)
	}
	if j.io.Write {
		return nil
	}
	stage, at := j.stage, j.io.Off
	for i := range j.segs {
		g := &j.segs[i]
		stage = stage[g.off-at:]
		at = g.off + int64(g.size)
		var err error
		switch {
		case s.byRow:
			err = s.unpack(g, stage[:g.size])
		case g.direct:
			err = s.verify(g)
		default:
			copy(g.rec.Data, stage[g.skip:])
			err = s.verify(g)
		}
		if !g.direct {
			stage = stage[g.size:]
		}
		if err != nil {
			s.mu.Lock()
			s.stats.Corrupt++
			s.mu.Unlock()
			return err
		}
	}
	return nil
}

// poll delivers what has ended.
func (s *SSD) poll() bool {
	s.engine.Poll()
	return true
}

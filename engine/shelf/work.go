package shelf

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"terrace/policy"
)

// minProfiled is how many blocks a context has at least that is worth compressing.
const minProfiled = 2

// Work takes a step where the engine has nothing else to do: a context that is put, moved or compressed, or profiled; false = there is nothing to do. When ctx
// ends it returns soon, at the end of a chunk or a token: contexts are where they were, and what was measured stays.
func (k *Keeper) Work(ctx context.Context) (more bool) {
	if k.placed != k.shelf.version {
		k.shelf.improve()
		k.placed = k.shelf.version
	}
	if more, err := k.shelf.move(ctx, false); more {
		if ctx.Err() == nil {
			k.trouble(err)
		}
		k.dirty = true
		return true
	}
	if k.shelf.placement.Kind == policy.PlaceEvicPress {
		if c := k.next(); c != nil {
			k.timed(ctx, c, k.profile)
			return true
		}
		if c := k.doubtful(); c != nil {
			k.timed(ctx, c, k.check)
			return true
		}
	}
	if k.dirty && k.file != "" && time.Since(k.saved) > saveEvery {
		k.trouble(k.save())
	}
	return false
}

// Between takes a step that computes nothing, between two steps of those who are served; false = there is none.
func (k *Keeper) Between(ctx context.Context) bool {
	more, err := k.shelf.move(ctx, true)
	k.trouble(err)
	k.dirty = k.dirty || more
	return more
}

// timed does something of a profile, and counts its time.
func (k *Keeper) timed(ctx context.Context, c *kept, do func(ctx context.Context, c *kept) error) {
	began := time.Now()
	err := do(ctx, c)
	k.figures.ProfileS += time.Since(began).Seconds()
	if err != nil && ctx.Err() == nil {
		c.fails, c.unchecked = true, nil
		k.trouble(err)
	}
}

// next is the context to profile: the one that was asked for most, of those the last.
func (k *Keeper) next() *kept {
	var all []*kept
	for _, c := range k.kept {
		if len(c.keys) >= minProfiled && !c.fails && (c.stale || !k.measured(c)) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MaxFunc(all, func(a, b *kept) int { return cmp.Or(cmp.Compare(a.asked, b.asked), cmp.Compare(a.used, b.used)) })
}

// measured reports whether all of a context's configurations were.
func (k *Keeper) measured(c *kept) bool {
	quality := k.qualityOf(c)
	return !slices.ContainsFunc(k.shelf.configs, func(config policy.Config) bool {
		_, ok := quality.Of(config)
		return !ok
	})
}

// profile measures a context's configurations, and has it placed by them.
func (k *Keeper) profile(ctx context.Context, c *kept) error {
	if c.profile == nil {
		c.profile = &Profiling{Questions: slices.Clone(c.questions)}
	}
	if err := k.r.Profile(ctx, c.IDs, c.Salt, c.profile, k.shelf.configs); err != nil {
		return err
	}
	k.figures.Profiled++
	k.dirty, c.unchecked, c.stale = true, nil, false
	return k.shelf.Profiled(c.ID, c.profile.Quality)
}

// doubtful is a context whose compressed form has answered since it was profiled or checked, where profiles are checked.
func (k *Keeper) doubtful() *kept {
	if k.shelf.placement.Reprofile == 0 {
		return nil
	}
	for _, c := range k.kept {
		if c.unchecked != nil && !c.fails {
			return c
		}
	}
	return nil
}

// check asks the last question of the whole context and of its compressed form; where the answers are less alike than the profile says
// it is measured again, on the questions that came.
func (k *Keeper) check(ctx context.Context, c *kept) error {
	config, stored := k.shelf.Where(c.ID)
	if !stored || config == policy.Uncompressed {
		c.unchecked = nil
		return nil
	}
	p := &Profiling{Questions: [][]int{c.unchecked}}
	if err := k.r.Profile(ctx, c.IDs, c.Salt, p, []policy.Config{config}); err != nil {
		return err
	}
	c.unchecked = nil
	if score, _ := p.Quality.Of(config); !k.shelf.Worse(c.ID, config, score) {
		return nil
	}
	k.figures.Reprofiled++
	c.profile, c.stale = nil, true
	return nil
}

// Figures are what a Keeper has done, and what it keeps.
type Figures struct {
	Moves      int     `json:"moves"`
	Shrunk     int     `json:"shrunk"` // of them, made smaller from what was stored
	Profiled   int     `json:"profiled"`
	Reprofiled int     `json:"reprofiled"`
	ProfileS   float64 `json:"profile_s"`
	Forms      []Form  `json:"forms"`
}

// Form is a way in which contexts lie on a tier.
type Form struct {
	Tier     string  `json:"tier"` // host, ssd; computed: they are not stored
	Method   string  `json:"method"`
	Keep     float64 `json:"keep"`
	Contexts int     `json:"contexts"`
	Bytes    int64   `json:"bytes"` // blocks that several contexts share count for each
}

// Same reports whether another form is the same, whatever lies so.
func (f Form) Same(o Form) bool { return f.Tier == o.Tier && f.Method == o.Method && f.Keep == o.Keep }

// Figures says what was done, and what lies where.
func (k *Keeper) Figures() Figures {
	f := k.figures
	f.Moves, f.Shrunk = k.shelf.Moved, k.shelf.Shrunk
	f.Forms = nil
	for _, it := range k.shelf.items {
		form := Form{Tier: "computed", Method: policy.Uncompressed.Method, Keep: 1}
		if it.tier >= 0 {
			form = Form{Tier: k.shelf.names[it.tier], Method: it.config.Method, Keep: it.config.Keep}
		}
		i := slices.IndexFunc(f.Forms, form.Same)
		if i < 0 {
			i = len(f.Forms)
			f.Forms = append(f.Forms, form)
		}
		f.Forms[i].Contexts++
		f.Forms[i].Bytes += it.bytes
	}
	slices.SortFunc(f.Forms, func(a, b Form) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Method, b.Method), cmp.Compare(b.Keep, a.Keep))
	})
	return f
}

// ready puts contexts that are there, and need neither the engine nor a slow tier, where they belong, as far as there is room.
func (s *Shelf) ready(ctx context.Context) error {
	var errs []error
	for _, c := range s.changes() {
		if c.tier >= 0 && s.names[c.tier] == "host" && c.it.tier < 0 && !s.computes(c) && s.hasRoom(c) {
			errs = append(errs, s.carry(ctx, c))
		}
	}
	return errors.Join(errs...)
}

// packed is how much waits in memory to be put.
func (s *Shelf) packed() (bytes int64) {
	for _, it := range s.items {
		for _, r := range slices.Concat(it.packed, it.held) {
			bytes += r.Bytes()
		}
	}
	return bytes
}

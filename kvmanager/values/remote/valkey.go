package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"terrace/kvmanager/values"
)

// valkeyStore keeps records on a valkey or redis server: each under terrace:1:KEY, and in the sorted set terrace:1:used its name and
// size with the time of its last use in milliseconds.
type valkeyStore struct{ c valkey.Client }

const (
	valkeyPrefix = "terrace:1:"
	valkeyUsed   = valkeyPrefix + "used"
)

func openValkey(place, user, password string) (*valkeyStore, error) {
	if _, _, err := net.SplitHostPort(place); err != nil {
		return nil, fmt.Errorf("contexts: valkey: want HOST:PORT: %w: %w", err, values.ErrPlace)
	}
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{place}, Username: user, Password: password, ClientName: "terrace",
		Dialer: net.Dialer{Timeout: time.Second, KeepAlive: time.Second}, ConnWriteTimeout: values.OpTimeout, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		return nil, fmt.Errorf("contexts: valkey: %w", err)
	}
	return &valkeyStore{c}, nil
}

// own does an operation again where it ended with another one's context: connections are made on behalf of whoever needs them
// first, and all that wait for one get what that one gets.
func own(ctx context.Context, do func() error) error {
	for tries := 0; ; tries++ {
		err := do()
		if others := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded); !others || ctx.Err() != nil || tries == 3 {
			return err
		}
	}
}

func (s *valkeyStore) Get(ctx context.Context, name string, most int64) (b []byte, err error) {
	err = own(ctx, func() error {
		cmd := s.c.B().Get().Key(valkeyPrefix + name).Build()
		if most > 0 {
			cmd = s.c.B().Getrange().Key(valkeyPrefix + name).Start(0).End(most - 1).Build()
		}
		b, err = s.c.Do(ctx, cmd).AsBytes()
		return err
	})
	if said, ok := valkey.IsValkeyErr(err); ok && strings.HasPrefix(said.Error(), "WRONGTYPE") {
		return nil, values.ErrMiss // somebody else's: one record less, the server is well
	}
	if valkey.IsValkeyNil(err) || err == nil && len(b) == 0 {
		return nil, values.ErrMiss
	}
	return b, wrapValkey(err)
}

// multi sends commands together; build makes them, as each is sent once only.
func (s *valkeyStore) multi(ctx context.Context, build func() valkey.Commands) (out []valkey.ValkeyResult, err error) {
	err = own(ctx, func() error {
		out = s.c.DoMulti(ctx, build()...)
		var errs []error
		for _, r := range out {
			errs = append(errs, r.Error())
		}
		return errors.Join(errs...)
	})
	return out, wrapValkey(err)
}

func wrapValkey(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("contexts: valkey: %w", err)
}

// member is a record's name in the sorted set.
func member(v values.Value) string { return v.Name + ":" + strconv.FormatInt(v.Bytes, 10) }

func (s *valkeyStore) Put(ctx context.Context, name string, value []byte) error {
	b := values.Value{Name: name, Bytes: int64(len(value)), Used: time.Now()}
	_, err := s.multi(ctx, func() valkey.Commands {
		return valkey.Commands{s.c.B().Set().Key(valkeyPrefix + name).Value(valkey.BinaryString(value)).Build(),
			s.c.B().Zadd().Key(valkeyUsed).ScoreMember().ScoreMember(float64(b.Used.UnixMilli()), member(b)).Build()}
	})
	return err
}

func (s *valkeyStore) Delete(ctx context.Context, list []values.Value) error {
	_, err := s.multi(ctx, func() (cmds valkey.Commands) {
		for _, b := range list {
			cmds = append(cmds, s.c.B().Unlink().Key(valkeyPrefix+b.Name).Build(), s.c.B().Zrem().Key(valkeyUsed).Member(member(b)).Build())
		}
		return cmds
	})
	return err
}

func (s *valkeyStore) There(ctx context.Context, names []string) ([]bool, error) {
	got, err := s.multi(ctx, func() (cmds valkey.Commands) {
		for _, n := range names {
			cmds = append(cmds, s.c.B().Exists().Key(valkeyPrefix+n).Build())
		}
		return cmds
	})
	if err != nil {
		return nil, err
	}
	out := make([]bool, len(names))
	for i, r := range got {
		n, err := r.AsInt64()
		if err != nil {
			return nil, wrapValkey(err)
		}
		out[i] = n > 0
	}
	return out, nil
}

// Index reads the sorted set; members that are nonsense are passed over.
func (s *valkeyStore) Index(ctx context.Context) (out []values.Value, err error) {
	var scores []valkey.ZScore
	err = own(ctx, func() error {
		scores, err = s.c.Do(ctx, s.c.B().Zrange().Key(valkeyUsed).Min("0").Max("-1").Withscores().Build()).AsZScores()
		return err
	})
	if err != nil && !valkey.IsValkeyNil(err) {
		return nil, wrapValkey(err)
	}
	for _, z := range scores {
		name, size, ok := strings.Cut(z.Member, ":")
		n, err := strconv.ParseInt(size, 10, 64)
		if ok && err == nil && n > 0 && n <= values.MaxBytes {
			out = append(out, values.Value{Name: name, Bytes: n, Used: time.UnixMilli(int64(z.Score))})
		}
	}
	return out, nil
}

func (s *valkeyStore) Used(ctx context.Context, list []values.Value) error {
	cmd := s.c.B().Zadd().Key(valkeyUsed).Xx().ScoreMember()
	for _, b := range list {
		cmd = cmd.ScoreMember(float64(b.Used.UnixMilli()), member(b))
	}
	return wrapValkey(s.c.Do(ctx, cmd.Build()).Error())
}

func (s *valkeyStore) Close() error { s.c.Close(); return nil }

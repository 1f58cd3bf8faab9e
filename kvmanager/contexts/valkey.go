//go:build !lean

package contexts

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
		return nil, fmt.Errorf("contexts: valkey: want HOST:PORT: %w: %w", err, ErrSpec)
	}
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{place}, Username: user, Password: password, ClientName: "terrace",
		Dialer: net.Dialer{Timeout: time.Second, KeepAlive: time.Second}, ConnWriteTimeout: opTimeout, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}})
	if err != nil {
		return nil, fmt.Errorf("contexts: valkey: %w", err)
	}
	return &valkeyStore{c}, nil
}

func (s *valkeyStore) get(ctx context.Context, name string, most int64) ([]byte, error) {
	cmd := s.c.B().Get().Key(valkeyPrefix + name).Build()
	if most > 0 {
		cmd = s.c.B().Getrange().Key(valkeyPrefix + name).Start(0).End(most - 1).Build()
	}
	b, err := s.c.Do(ctx, cmd).AsBytes()
	if valkey.IsValkeyNil(err) || err == nil && len(b) == 0 {
		return nil, ErrMiss
	}
	return b, wrapValkey(err)
}

func wrapValkey(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("contexts: valkey: %w", err)
}

// member is a record's name in the sorted set.
func (b blob) member() string { return b.name + ":" + strconv.FormatInt(b.bytes, 10) }

func (s *valkeyStore) put(ctx context.Context, name string, value []byte) error {
	b := blob{name, int64(len(value)), time.Now()}
	var errs []error
	for _, r := range s.c.DoMulti(ctx, s.c.B().Set().Key(valkeyPrefix+name).Value(valkey.BinaryString(value)).Build(),
		s.c.B().Zadd().Key(valkeyUsed).ScoreMember().ScoreMember(float64(b.used.UnixMilli()), b.member()).Build()) {
		errs = append(errs, r.Error())
	}
	return wrapValkey(errors.Join(errs...))
}

func (s *valkeyStore) del(ctx context.Context, list []blob) error {
	var cmds valkey.Commands
	for _, b := range list {
		cmds = append(cmds, s.c.B().Unlink().Key(valkeyPrefix+b.name).Build(), s.c.B().Zrem().Key(valkeyUsed).Member(b.member()).Build())
	}
	var errs []error
	for _, r := range s.c.DoMulti(ctx, cmds...) {
		errs = append(errs, r.Error())
	}
	return wrapValkey(errors.Join(errs...))
}

func (s *valkeyStore) there(ctx context.Context, names []string) ([]bool, error) {
	var cmds valkey.Commands
	for _, n := range names {
		cmds = append(cmds, s.c.B().Exists().Key(valkeyPrefix+n).Build())
	}
	out := make([]bool, len(names))
	for i, r := range s.c.DoMulti(ctx, cmds...) {
		n, err := r.AsInt64()
		if err != nil {
			return nil, wrapValkey(err)
		}
		out[i] = n > 0
	}
	return out, nil
}

// index reads the sorted set; members that are nonsense are passed over.
func (s *valkeyStore) index(ctx context.Context) (out []blob, err error) {
	scores, err := s.c.Do(ctx, s.c.B().Zrange().Key(valkeyUsed).Min("0").Max("-1").Withscores().Build()).AsZScores()
	if err != nil && !valkey.IsValkeyNil(err) {
		return nil, wrapValkey(err)
	}
	for _, z := range scores {
		name, size, ok := strings.Cut(z.Member, ":")
		n, err := strconv.ParseInt(size, 10, 64)
		if ok && err == nil && n > 0 && n <= maxRecordBytes {
			out = append(out, blob{name, n, time.UnixMilli(int64(z.Score))})
		}
	}
	return out, nil
}

func (s *valkeyStore) used(ctx context.Context, list []blob) error {
	cmd := s.c.B().Zadd().Key(valkeyUsed).Xx().ScoreMember()
	for _, b := range list {
		cmd = cmd.ScoreMember(float64(b.used.UnixMilli()), b.member())
	}
	return wrapValkey(s.c.Do(ctx, cmd.Build()).Error())
}

func (s *valkeyStore) close() error { s.c.Close(); return nil }

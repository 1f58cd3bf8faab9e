package csdshim

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"terrace/csdshim/profiles"
	"terrace/internal/clock"
)

// TestServerProcess is no test: started by others with arguments, this binary is a drive of its own.
func TestServerProcess(t *testing.T) {
	if flag.NArg() != 3 && flag.NArg() != 4 {
		t.Skip("only as a process of its own, for the tests that kill it")
	}
	capacity := int64(2 << 20)
	if flag.NArg() == 4 {
		capacity = 1 << 30
		core, err := strconv.Atoi(flag.Arg(3))
		if err = errors.Join(err, PinToCore(core)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := profiles.Load("unlimited")
	if err != nil {
		t.Fatal(err)
	}
	faults := Faults{}
	if text := flag.Arg(2); text != "" {
		f, err := ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		faults.Rules = []Fault{f}
	}
	d, err := OpenDrive(flag.Arg(0), Options{Profile: p, CapacityBytes: capacity, NoSync: true, Clock: clock.Real(), Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(flag.Arg(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Serve(context.Background(), l, ServerOptions{}); err != nil {
		t.Fatal(err)
	}
}

// process is a drive that can be killed; started with a core, it is kept on that one, and is of 1 GiB.
type process struct {
	cmd    *exec.Cmd
	socket string
	out    bytes.Buffer
}

func startProcess(t testing.TB, dir, socket, fault string, core ...string) *process {
	t.Helper()
	p := &process{socket: socket, cmd: exec.Command(os.Args[0], append([]string{"-test.run=^TestServerProcess$", "--", dir, socket, fault}, core...)...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// connect dials until the process listens.
func (p *process) connect(t testing.TB, owner [16]byte) *Client {
	t.Helper()
	var err error
	var c *Client
	if eventually(30*time.Second, func() bool {
		c, err = Dial(context.Background(), p.socket, ClientOptions{Owner: owner, Lease: Keep})
		return err == nil
	}) {
		return c
	}
	p.kill()
	t.Fatalf("%v; the drive said: %s", err, p.out.String())
	return nil
}

// life is what one writer knows of its sequence over the drive's deaths.
type life struct {
	w     *cache
	owner [16]byte
	acked map[[2]int]Group
	maybe map[[2]int][]Group // written without an answer
	sent  int
}

// work writes groups until the drive dies; after the kill-th of them it asks for that death.
func (l *life) work(t *testing.T, c *Client, rng *rand.Rand, killAt int, kill func()) {
	for n := 0; ; n++ {
		if n == killAt {
			go kill()
		}
		var batch []Group
		for range 1 + rng.IntN(3) {
			g := l.w.group(rng.IntN(2), rng.IntN(12))
			if len(batch) > 0 && (batch[0].Layer != g.Layer || batch[len(batch)-1].Index >= g.Index) {
				continue
			}
			batch = append(batch, g)
		}
		_, err := c.WriteGroups(context.Background(), 1, batch)
		for _, g := range batch {
			at := [2]int{g.Layer, g.Index}
			if err == nil {
				l.acked[at] = g
				delete(l.maybe, at)
			} else {
				l.maybe[at] = append(l.maybe[at], g)
			}
		}
		l.sent++
		if err != nil {
			if !errors.Is(err, ErrLost) {
				t.Errorf("a killed drive: %v", err)
			}
			return
		}
	}
}

// verify reads all that was acknowledged; a group whose last write had no answer is as before, or as written.
func (l *life) verify(t *testing.T, c *Client) {
	t.Helper()
	for at, g := range l.acked {
		got := Group{Layer: g.Layer, Index: g.Index, Data: make([]byte, len(g.Data))}
		_, err := c.Fetch(context.Background(), 1, []Group{got})
		ok := err == nil && bytes.Equal(got.Data, g.Data)
		for _, m := range l.maybe[at] {
			if err == nil && bytes.Equal(got.Data, m.Data) {
				ok = true
				l.acked[at] = m
			}
		}
		if !ok {
			t.Fatalf("layer %d group %d: acknowledged, and now %v", g.Layer, g.Index, err)
		}
	}
	clear(l.maybe)
}

// TestKilled kills a drive's process again and again while two clients write: nothing acknowledged is lost, and every
// client learns of the death at once.
func TestKilled(t *testing.T) {
	deaths := 25
	if testing.Short() {
		deaths = 5
	}
	dir, sockets := t.TempDir(), t.TempDir()
	if len(sockets) > 80 {
		sockets, _ = os.MkdirTemp("", "csd")
		defer os.RemoveAll(sockets)
	}
	rng := rand.New(rand.NewPCG(11, 12))
	lives := []*life{}
	for i := range 2 {
		lives = append(lives, &life{w: newCache(smallShape(CodesInt8, true), uint64(i)), owner: [16]byte{byte(i + 1)}, acked: map[[2]int]Group{}, maybe: map[[2]int][]Group{}})
	}
	for death := range deaths {
		p := startProcess(t, dir, filepath.Join(sockets, strconv.Itoa(death)), "")
		var clients []*Client
		for _, l := range lives {
			c := p.connect(t, l.owner)
			if err := c.OpenSequence(context.Background(), 1, l.w.shape); err != nil {
				t.Fatal(err)
			}
			l.verify(t, c)
			clients = append(clients, c)
		}
		killAt, delay := rng.IntN(12), time.Duration(rng.IntN(2000))*time.Microsecond
		var wg sync.WaitGroup
		var once sync.Once
		for i, l := range lives {
			seed := rng.Uint64()
			wg.Go(func() {
				l.work(t, clients[i], rand.New(rand.NewPCG(seed, 0)), killAt, func() {
					once.Do(func() { <-time.After(delay); p.cmd.Process.Kill() })
				})
			})
		}
		wg.Wait()
		p.kill()
		for _, c := range clients {
			c.Abandon()
		}
		if t.Failed() {
			t.Fatalf("death %d: the drive said: %s", death, p.out.String())
		}
	}
	p := startProcess(t, dir, filepath.Join(sockets, "end"), "")
	for i, l := range lives {
		c := p.connect(t, l.owner)
		c.shapes[1] = l.w.shape
		l.verify(t, c)
		c.Abandon()
		t.Logf("client %d: %d groups are there after %d deaths and %d writes", i, len(l.acked), deaths, l.sent)
	}
	noGoroutines(t)
}

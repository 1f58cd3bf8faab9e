package simulate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// handFleet is two servers with memory for two contexts, at rates by which a context comes from the server's own memory in 1 and from the store in 2.
func handFleet() *fleet {
	f := &fleet{p: P{"gpu_flops": 1, "host_bps": 10, "store_bps": 5, "nic_bps": 20, "context_tokens": 8, "query_tokens": 1, "output_tokens": 3, "decode_step_s": 0.5}, servers: make([]server, 2), inStore: map[int]bool{}, bytes: 10, capacity: 2, m: shapes["Llama-3.1-8B"]}
	for i := range f.servers {
		f.servers[i].has = map[int32]bool{}
	}
	return f
}

// TestFleetByHand: requests one after another, with the times and counts that come of each.
func TestFleetByHand(t *testing.T) {
	f := handFleet()
	context := f.compute(8)
	if want := 2*8*f.m.active() + 2*float64(f.m.heads*f.m.headDim*f.m.layers)*64; context != want {
		t.Fatalf("a context of 8 tokens takes %v operations, want %v", context, want)
	}
	f.p["gpu_flops"] = context / 8 // 8 s a context
	context, query := f.compute(8), f.compute(1)
	ttft := 0.0
	for i, c := range []struct {
		at            float64
		context, on   int
		fails         bool
		ready         float64 // when its query is prefilled
		local, stored int     // so far
	}{
		{0, 1, 0, false, 8 + query, 0, 0},             // computed
		{0, 1, 1, false, 2 + query, 0, 1},             // the store has it for the other server
		{1, 1, 1, false, 2 + query + 1 + query, 1, 1}, // waits for its server, where it lies
		{20, 2, 0, false, 28 + query, 1, 1},           // computed
		{40, 3, 0, false, 48 + query, 1, 1},           // computed: context 1 leaves the memory
		{60, 1, 0, false, 62 + query, 1, 2},           // and comes back from the store
		{70, 3, 0, true, 71 + query, 2, 2},            // fails, and has taken its time
		{80, 2, 1, false, 82 + query, 2, 3},           // from the store
		{80, 3, 0, false, 80 + 1 + query, 3, 3},       // lies there
		{100, 2, 0, false, 100 + 2 + query, 3, 4},     // had to leave for context 1
		{100, 1, 1, false, 100 + 1 + query, 4, 4},     // lies there still: two contexts fit
	} {
		f.serve(arrival{at: c.at, context: c.context, fails: c.fails}, c.on)
		if !c.fails {
			ttft += c.ready - c.at
		}
		if got := f.servers[c.on].free; math.Abs(got-c.ready) > 1e-9 || f.run.local != c.local || f.run.stored != c.stored || math.Abs(f.run.ttft-ttft) > 1e-9 {
			t.Fatalf("request %d: ready at %v, want %v; %d local and %d stored, want %d and %d; %v s to first tokens, want %v", i, got, c.ready, f.run.local, f.run.stored, c.local, c.stored, f.run.ttft, ttft)
		}
	}
	if r := f.run; r.arrived != 11 || r.completed != 10 || r.failed != 1 || r.busy != 4*2 || r.wanted != 4*10 || math.Abs(r.end-(102+query+1.5)) > 1e-9 || len(f.leaving) != 11 {
		t.Errorf("%+v, %d leave", r, len(f.leaving))
	}
	f.store = 1e6 // a line that long is not waited for
	f.serve(arrival{at: 200, context: 3}, 1)
	if got := f.servers[1].free; math.Abs(got-(200+context+query)) > 1e-9 || f.run.stored != 4 || f.run.wanted != 50 {
		t.Errorf("beside a long line: ready at %v, %+v", got, f.run)
	}
}

// TestFleetAccounts: every request ends once; a fleet whose memory and store hold nothing twice finds less; the router is one line.
func TestFleetAccounts(t *testing.T) {
	p := (&settings{params: pick("fleet")}).numbers().with("seed", 1).with("failures", 0.05)
	for _, n := range []int{1, 7, 40} {
		for _, affinity := range []bool{true, false} {
			r := runFleet(p, n, affinity)
			if r.arrived != int(p["requests_a_server"])*n || r.completed+r.failed != r.arrived || math.Abs(float64(r.failed)/float64(r.arrived)-0.05) > 0.03 || r.routed < 0.999*float64(r.arrived)*p["router_s"] || r.routed > 1.001*float64(r.arrived)*p["router_s"] {
				t.Errorf("%d servers: %+v", n, r)
			}
		}
	}
	a, b, slow := runFleet(p, 40, true), runFleet(p, 40, false), runFleet(p.with("router_s", 1), 40, true)
	if a.local <= 2*b.local || a.wanted >= b.wanted {
		t.Errorf("affinity finds %d contexts at the server and asks the store for %v bytes, random routing %d and %v", a.local, a.wanted, b.local, b.wanted)
	}
	if wait := (slow.ttft - a.ttft) / float64(a.completed); wait < 0.4*slow.routed-slow.span {
		t.Errorf("a router of a second a request makes each wait %v s more, of %v s of its work in %v", wait, slow.routed, slow.span)
	}
}

// TestFleetLimits: what store and router would have to do, and where each of them ends, by the counts of a run.
func TestFleetLimits(t *testing.T) {
	b := &builder{p: P{"nic_bps": 10, "store_bps": 100}, settings: &settings{}}
	b.limits("affinity", X("servers", 1000), fleetRun{arrived: 50, routed: 10, span: 20, wanted: 700}, 1000)
	want := map[string]float64{"store_demand": 35, "store_machines": 5, "router_utilisation": 0.5, "router_threads": 1, "servers_of_the_store": 2000, "servers_of_the_router": 1400}
	if len(b.rows) != len(want) {
		t.Errorf("%d rows, want %d", len(b.rows), len(want))
	}
	for _, r := range b.rows {
		if r.Value != want[r.Metric] {
			t.Errorf("%s is %v, want %v", r.Metric, r.Value, want[r.Metric])
		}
	}
}

// TestFleetRoutes: affinity sends a context to its own server unless four more wait there than at the better of two others; random routing to the
// better of two.
func TestFleetRoutes(t *testing.T) {
	f := handFleet()
	own := hash(5, 2)
	for queue, want := range map[int]bool{0: true, 4: true, 5: false} {
		f.servers[own].queue = queue
		stays := 0
		for seed := range uint64(50) {
			if f.route(arrival{context: 5}, true, rand.New(rand.NewPCG(seed, 1))) == own {
				stays++
			}
			if at := f.route(arrival{context: 5}, false, rand.New(rand.NewPCG(seed, 1))); queue > 0 && at == own {
				r := rand.New(rand.NewPCG(seed, 1))
				if a, b := r.IntN(2), r.IntN(2); a != own || b != own {
					t.Errorf("with a queue of %d random routing took it, of %d and %d", queue, a, b)
				}
			}
		}
		if want && stays != 50 || !want && (stays == 50 || stays == 0) { // where both that were drawn are its own it stays
			t.Errorf("with a queue of %d its own server is taken %d times of 50", queue, stays)
		}
	}
}

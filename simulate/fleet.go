package simulate

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"slices"
)

// A fleet of servers that share a store of kept contexts (ours; no paper has it), event by event: requests arrive, a router
// picks a server, the context comes from the server's memory, from the store, or is computed (also where the store is so busy
// that this is sooner) and stored; then the query is prefilled and the answer decoded. A server does one prefill or load at a
// time; the store's bandwidth is one line for all, and so is the router's thread.
//
// What it says of 10,000 servers (infer simulate scale-servers): the store is the first to end. With affinity 32 machines of 100
// Gbit/s serve 3,500 servers, and 10,000 take 92: the more servers, the more often a context asked by many overflows from its own
// server to another, which fetches it. With random routing they serve 220. Above that servers compute again what they would wait
// for, or, if they waited, all queues would grow (1/10 of the requests a second, seen before the rule). A router of 20 µs a request
// serves 26,000 servers.

// arrival is one request.
type arrival struct {
	at      float64
	context int
	fails   bool
}

// server is one machine: when its GPU is free, and the contexts in its memory, least lately used first.
type server struct {
	free  float64
	queue int
	held  []int32 // contexts, oldest first
	has   map[int32]bool
}

// fleetRun is what a run counts.
type fleetRun struct {
	arrived, completed, failed, local, stored int
	ttft, busy, end                           float64
	routed, span                              float64 // seconds of the router's work; when the last request arrived
	wanted                                    float64 // bytes that the store had for a server that had them not
}

type departure struct {
	at     float64
	server int
}

type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	old := *d
	x := old[len(old)-1]
	*d = old[:len(old)-1]
	return x
}

// fleet is one run's state.
type fleet struct {
	p        P
	m        shape
	servers  []server
	leaving  departures
	store    float64 // when its line is free
	router   float64 // likewise
	inStore  map[int]bool
	capacity int // contexts that a server's memory holds
	bytes    float64
	run      fleetRun
}

func (f *fleet) compute(tokens float64) float64 {
	return (2*tokens*f.m.active() + 2*float64(f.m.heads*f.m.headDim*f.m.layers)*tokens*tokens) / f.p["gpu_flops"]
}

// fleetTrace is the arrivals: Poisson, with a share of what the servers can compute, contexts by a power law.
func fleetTrace(p P, n int, each float64) []arrival {
	rng := rand.New(rand.NewPCG(uint64(p["seed"]), uint64(n)))
	contexts := max(1, int(p["contexts_a_server"])*n)
	weight := make([]float64, contexts)
	sum := 0.0
	for i := range weight {
		sum += math.Pow(float64(i+1), -p["skew"])
		weight[i] = sum
	}
	rate := p["load"] * float64(n) / each
	list := make([]arrival, max(1, int(p["requests_a_server"])*n))
	at := 0.0
	for i := range list {
		at += rng.ExpFloat64() / rate
		c, _ := slices.BinarySearch(weight, rng.Float64()*sum)
		list[i] = arrival{at, min(c, contexts-1), rng.Float64() < p["failures"]}
	}
	return list
}

// runFleet is n servers under a router: affinity sends a context to the server that is its own by hash, unless that one's queue
// is much longer than the shortest of two others; random to any.
func runFleet(p P, n int, affinity bool) fleetRun {
	f := &fleet{p: p, m: shapes["Llama-3.1-8B"], servers: make([]server, n), inStore: map[int]bool{}}
	f.bytes = p["context_tokens"] * f.m.kvBytes()
	f.capacity = max(1, int(p["host_bytes"]/f.bytes))
	each := f.compute(p["context_tokens"]) + f.compute(p["query_tokens"])
	rng := rand.New(rand.NewPCG(uint64(p["seed"])+7, uint64(n)))
	for i := range f.servers {
		f.servers[i].has = map[int32]bool{}
	}
	for _, a := range fleetTrace(p, n, each) {
		for len(f.leaving) > 0 && f.leaving[0].at <= a.at {
			f.servers[heap.Pop(&f.leaving).(departure).server].queue--
		}
		f.router = max(f.router, a.at) + p["router_s"] // one thread looks at every request
		f.run.routed += p["router_s"]
		f.run.span = a.at
		f.serve(a, f.route(a, affinity, rng))
	}
	return f.run
}

// hash spreads contexts over servers.
func hash(context, n int) int {
	x := uint64(context)*0x9e3779b97f4a7c15 + 0x632be59bd9b4e019
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	return int((x ^ x>>32) % uint64(n))
}

func (f *fleet) route(a arrival, affinity bool, rng *rand.Rand) int {
	n := len(f.servers)
	one, two := rng.IntN(n), rng.IntN(n)
	if f.servers[two].queue < f.servers[one].queue {
		one = two
	}
	if !affinity {
		return one
	}
	own := hash(a.context, n)
	if f.servers[own].queue > f.servers[one].queue+4 {
		return one
	}
	return own
}

func (f *fleet) serve(a arrival, at int) {
	s := &f.servers[at]
	f.run.arrived++
	came := max(a.at, f.router)
	start := max(came, s.free)
	ready := start
	id := int32(a.context)
	switch {
	case s.has[id]:
		ready += f.bytes / f.p["host_bps"]
		f.run.local++
	case f.fetches(a.context, came, start):
		line := f.bytes / f.p["store_bps"] // fetched while the request waits for its server
		begin := max(came, f.store)
		f.store = begin + line
		f.run.busy += line
		ready = max(start, f.store, begin+f.bytes/f.p["nic_bps"])
		f.run.stored++
	default:
		ready += f.compute(f.p["context_tokens"])
		f.inStore[a.context] = true
	}
	s.keep(id, f.capacity)
	ready += f.compute(f.p["query_tokens"])
	s.free = ready
	s.queue++
	heap.Push(&f.leaving, departure{ready, at})
	done := ready + f.p["output_tokens"]*f.p["decode_step_s"]
	f.run.end = max(f.run.end, done)
	if a.fails {
		f.run.failed++
		return
	}
	f.run.completed++
	f.run.ttft += ready - a.at
}

// fetches says whether a context comes from the store: where it is there, and the store has it sooner than computing it again.
func (f *fleet) fetches(context int, came, start float64) bool {
	if !f.inStore[context] {
		return false
	}
	f.run.wanted += f.bytes
	begin := max(came, f.store)
	return max(begin+f.bytes/f.p["store_bps"], begin+f.bytes/f.p["nic_bps"]) <= start+f.compute(f.p["context_tokens"])
}

// keep makes a context the one used last, within the memory.
func (s *server) keep(id int32, capacity int) {
	if s.has[id] {
		i := slices.Index(s.held, id)
		s.held = append(slices.Delete(s.held, i, i+1), id)
		return
	}
	if len(s.held) >= capacity {
		delete(s.has, s.held[0])
		s.held = slices.Delete(s.held, 0, 1)
	}
	s.held = append(s.held, id)
	s.has[id] = true
}

func fleetRuns(register registrar) {
	register(&experiment{id: "scale-servers", title: "1 to 10,000 servers that share a store of contexts, and what store and router they take", params: pick("fleet"), axes: axes{"servers": nums(1, 10, 100, 1000, 10000)}, run: scaleServers})
}

func scaleServers(b *builder) error {
	for _, v := range b.axes.numbers("servers") {
		n := int(min(20000, max(1, v)))
		for series, affinity := range map[string]bool{"affinity": true, "random": false} {
			r := runFleet(b.p, n, affinity)
			x := X("servers", v)
			seconds := max(r.end, 1e-9)
			b.model(series, "requests_arrived", "count", x, float64(r.arrived))
			b.model(series, "requests_completed", "count", x, float64(r.completed))
			b.model(series, "requests_failed", "count", x, float64(r.failed))
			b.model(series, "requests_per_s", "requests/s", x, float64(r.completed)/seconds)
			b.model(series, "ttft_s", "s", x, r.ttft/max(1, float64(r.completed)))
			b.model(series, "hit_rate", "fraction", x, float64(r.local+r.stored)/float64(r.arrived))
			b.model(series, "local_hit_rate", "fraction", x, float64(r.local)/float64(r.arrived))
			b.model(series, "store_utilisation", "fraction", x, min(1, r.busy/seconds))
			b.limits(series, x, r, float64(n))
			tokens := float64(r.completed) * (b.p["context_tokens"] + b.p["query_tokens"] + b.p["output_tokens"])
			b.model(series, "dollars_a_million_tokens", "dollars", x, float64(n)*b.p["server_dollars_an_hour"]*seconds/3600/max(1, tokens)*1e6)
		}
	}
	return nil
}

// comfortable is how busy what all servers share may be before requests wait long for it.
const comfortable = 0.7

// limits are what the shared store and the router would have to do for this fleet, and how many servers those given would serve: by
// the bytes and requests that arrived, whether or not they were kept up with.
func (b *builder) limits(series string, x map[string]any, r fleetRun, servers float64) {
	span := max(r.span, 1e-9)
	store := r.wanted / span // bytes a second that it had for servers, whether it was fast enough or they computed them again
	b.model(series, "store_demand", "B/s", x, store)
	b.model(series, "store_machines", "count", x, math.Ceil(store/comfortable/b.p["nic_bps"]))
	b.model(series, "router_utilisation", "fraction", x, r.routed/span)
	b.model(series, "router_threads", "count", x, math.Ceil(r.routed/span/comfortable))
	if store > 0 {
		b.model(series, "servers_of_the_store", "count", x, math.Floor(servers*comfortable*b.p["store_bps"]/store))
	}
	if r.routed > 0 {
		b.model(series, "servers_of_the_router", "count", x, math.Floor(servers*comfortable*span/r.routed))
	}
}

package serve

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"terrace/engine"
)

// metrics are a server's: names and meanings are vLLM's with our prefix, where it has them.
type metrics struct {
	registry *prometheus.Registry

	requests         *prometheus.CounterVec
	hits, policies   *prometheus.CounterVec
	held, usage      *prometheus.GaugeVec
	succeeded        *prometheus.CounterVec
	running, waiting prometheus.Gauge
	placement        *placementMetrics // nil = there is no --placement

	countedTokens
	durations
}

// countedTokens are sums over all requests.
type countedTokens struct {
	promptTokens, cachedTokens, generated   prometheus.Counter
	preemptions, queries, drafted, accepted prometheus.Counter
}

// durations are distributions of times and lengths.
type durations struct {
	ttft, itl, queue, step, duration, prompt, answer prometheus.Histogram
}

var (
	secondsBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}
	tokensBuckets  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
)

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrace_requests_total", Help: "Requests by route and status, 499 where the client left first."}, []string{"route", "code"})
	m.succeeded = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrace_request_success_total", Help: "Choices that ended, by reason."}, []string{"finished_reason"})
	m.registry.MustRegister(m.requests, m.succeeded, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.promptTokens = counter("terrace_prompt_tokens_total", "Prompt tokens of requests, cached ones too.")
	m.cachedTokens = counter("terrace_prompt_tokens_cached_total", "Prompt tokens that were not computed.")
	m.generated = counter("terrace_generation_tokens_total", "Tokens generated, end tokens too.")
	m.queries = counter("terrace_prefix_cache_queries_total", "Prompt tokens that a store was asked for.")
	m.hits = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrace_prefix_cache_hits_total", Help: "Prompt tokens that came from a store, by its slowest tier."}, []string{"tier"})
	m.held = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrace_kv_bytes", Help: "KV in use by tier."}, []string{"tier"})
	m.usage = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "terrace_kv_cache_usage_perc", Help: "KV in use by tier, as a share of its capacity (1 = full); tiers without a limit have none."}, []string{"tier"})
	m.policies = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrace_policy_seconds_total", Help: "Time that policies took to decide what is kept and read, by policy."}, []string{"policy"})
	m.registry.MustRegister(m.hits, m.held, m.usage, m.policies)
	m.preemptions = counter("terrace_num_preemptions_total", "Texts that left their memory to others for a while.")
	m.drafted = counter("terrace_spec_decode_num_draft_tokens_total", "Guesses that were read with a token (--speculate).")
	m.accepted = counter("terrace_spec_decode_num_accepted_tokens_total", "Guesses that the model chose.")
	m.running = gauge("terrace_num_requests_running", "Requests being served.")
	m.waiting = gauge("terrace_num_requests_waiting", "Requests that wait.")
	m.ttft = histogram("terrace_time_to_first_token_seconds", "From a request's arrival to the first token of a choice.", secondsBuckets)
	m.itl = histogram("terrace_inter_token_latency_seconds", "Between two tokens of a choice.", secondsBuckets)
	m.queue = histogram("terrace_request_queue_time_seconds", "From a request's arrival to its first work.", secondsBuckets)
	m.step = histogram("terrace_decode_step_seconds", "A decode step of all that decode, with the parts of prompts in its pass.", secondsBuckets)
	m.duration = histogram("terrace_e2e_request_latency_seconds", "From a generating request's arrival to its end.", secondsBuckets)
	m.prompt = histogram("terrace_request_prompt_tokens", "Prompt tokens of a request.", tokensBuckets)
	m.answer = histogram("terrace_request_generation_tokens", "Generated tokens of a request.", tokensBuckets)
	return m
}

// places is a tier's KV, as the loop has last seen it.
func (m *metrics) places(list []engine.Place) {
	for _, p := range list {
		m.held.WithLabelValues(p.Name).Set(float64(p.HeldBytes))
		if p.CapacityBytes > 0 {
			m.usage.WithLabelValues(p.Name).Set(float64(p.HeldBytes) / float64(p.CapacityBytes))
		}
	}
}

// decided counts what policies have taken since the loop last looked; seen is what was counted.
func (m *metrics) decided(now, seen map[string]time.Duration) {
	for name, d := range now {
		if more := d - seen[name]; more > 0 {
			m.policies.WithLabelValues(name).Add(more.Seconds())
			seen[name] = d
		}
	}
}

func (m *metrics) setRequests(running, waiting int) {
	m.running.Set(float64(running))
	m.waiting.Set(float64(waiting))
}

// prompted counts a prompt that was read.
func (m *metrics) prompted(tokens int, reused engine.Reused) {
	m.promptTokens.Add(float64(tokens))
	m.cachedTokens.Add(float64(reused.Tokens))
	m.queries.Add(float64(tokens))
	if reused.Tier != "" {
		m.hits.WithLabelValues(reused.Tier).Add(float64(reused.Tokens))
	}
}

// guessed counts what guessing has brought since before.
func (m *metrics) guessed(now engine.Speculation, before *engine.Speculation) {
	m.drafted.Add(float64(now.Drafted - before.Drafted))
	m.accepted.Add(float64(now.Accepted - before.Accepted))
	*before = now
}

func (m *metrics) finished(f Finish) { m.succeeded.WithLabelValues(string(f)).Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// alias adds a second set of names for dashboards of another server.
func (m *metrics) alias(of string) error {
	switch of {
	case "":
		return nil
	case "llamacpp":
	default:
		return fmt.Errorf("serve: metrics alias %q, want llamacpp", of)
	}
	for name, of := range map[string]prometheus.Collector{
		"llamacpp:requests_processing": m.running, "llamacpp:requests_deferred": m.waiting,
		"llamacpp:prompt_tokens_total": m.promptTokens, "llamacpp:tokens_predicted_total": m.generated,
	} {
		m.registry.MustRegister(&renamed{name: name, of: of})
	}
	return nil
}

// renamed is a metric without labels under another name.
type renamed struct {
	name string
	of   prometheus.Collector
}

func (r *renamed) desc() *prometheus.Desc {
	return prometheus.NewDesc(r.name, "The same as Terrace's own, under llama.cpp's name.", nil, nil)
}

// Describe implements prometheus.Collector.
func (r *renamed) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc() }

// Collect implements prometheus.Collector.
func (r *renamed) Collect(ch chan<- prometheus.Metric) {
	in := make(chan prometheus.Metric, 1)
	r.of.Collect(in)
	var now dto.Metric
	if (<-in).Write(&now) != nil {
		return
	}
	if now.Counter != nil {
		ch <- prometheus.MustNewConstMetric(r.desc(), prometheus.CounterValue, now.Counter.GetValue())
	} else {
		ch <- prometheus.MustNewConstMetric(r.desc(), prometheus.GaugeValue, now.Gauge.GetValue())
	}
}

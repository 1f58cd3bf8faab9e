package serve

import (
	"fmt"
	"net/http"
	"time"

	"terrace/engine"
	"terrace/serve/meter"
)

// metrics are a server's: names and meanings are vLLM's with our prefix, where it has them.
type metrics struct {
	meter meter.Meter

	requests, succeeded meter.Metric // by route and code, by reason
	hits, held, usage   meter.Metric // by tier
	policies            meter.Metric // by policy
	running, waiting    counted
	placement           *placementMetrics // nil = there is no --placement

	countedTokens
	durations
}

// counted is a metric without labels and its one series: a step counts without looking it up.
type counted struct {
	meter.Metric
	meter.Series
}

func newCounted(by meter.Meter, kind meter.Kind, name, help string) counted {
	m := by.New(meter.Desc{Kind: kind, Name: name, Help: help})
	return counted{m, m.With()}
}

// countedTokens are sums over all requests.
type countedTokens struct {
	promptTokens, cachedTokens, generated counted
	preemptions, suspended                counted
	queries, drafted, accepted            counted
}

// durations are distributions of times and lengths.
type durations struct {
	ttft, itl, queue, step, duration, prompt, answer meter.Series
}

var (
	secondsBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}
	tokensBuckets  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}
)

// newMetrics counts by a meter, nil = in sums alone.
func newMetrics(by func() meter.Meter) *metrics {
	m := &metrics{meter: meter.Sums{}}
	if by != nil {
		m.meter = by()
	}
	count := func(name, help string) counted { return newCounted(m.meter, meter.Counter, name, help) }
	counter := func(name, help string, labels ...string) meter.Metric {
		return m.meter.New(meter.Desc{Kind: meter.Counter, Name: name, Help: help, Labels: labels})
	}
	gauge := func(name, help string, labels ...string) meter.Metric {
		return m.meter.New(meter.Desc{Kind: meter.Gauge, Name: name, Help: help, Labels: labels})
	}
	histogram := func(name, help string, buckets []float64) meter.Series {
		return m.meter.New(meter.Desc{Kind: meter.Histogram, Name: name, Help: help, Buckets: buckets}).With()
	}
	m.meter.Process()
	m.requests = counter("terrace_requests_total", "Requests by route and status, 499 where the client left first.", "route", "code")
	m.succeeded = counter("terrace_request_success_total", "Choices that ended, by reason.", "finished_reason")
	m.promptTokens = count("terrace_prompt_tokens_total", "Prompt tokens of requests, cached ones too.")
	m.cachedTokens = count("terrace_prompt_tokens_cached_total", "Prompt tokens that were not computed.")
	m.generated = count("terrace_generation_tokens_total", "Tokens generated, end tokens too.")
	m.queries = count("terrace_prefix_cache_queries_total", "Prompt tokens that a store was asked for.")
	m.hits = counter("terrace_prefix_cache_hits_total", "Prompt tokens that came from a store, by its slowest tier.", "tier")
	m.held = gauge("terrace_kv_bytes", "KV in use by tier.", "tier")
	m.usage = gauge("terrace_kv_cache_usage_perc", "KV in use by tier, as a share of its capacity (1 = full); tiers without a limit have none.", "tier")
	m.policies = counter("terrace_policy_seconds_total", "Time that policies took to decide what is kept and read, by policy.", "policy")
	m.preemptions = count("terrace_num_preemptions_total", "Texts that left their memory to others for a while.")
	m.suspended = count("terrace_num_suspensions_total", "Of them those whose KV and state stayed on a lower tier and were not computed again.")
	m.drafted = count("terrace_spec_decode_num_draft_tokens_total", "Guesses that were read with a token (--speculate).")
	m.accepted = count("terrace_spec_decode_num_accepted_tokens_total", "Guesses that the model chose.")
	m.running = newCounted(m.meter, meter.Gauge, "terrace_num_requests_running", "Requests being served.")
	m.waiting = newCounted(m.meter, meter.Gauge, "terrace_num_requests_waiting", "Requests that wait.")
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
		m.held.With(p.Name).Set(float64(p.HeldBytes))
		if p.CapacityBytes > 0 {
			m.usage.With(p.Name).Set(float64(p.HeldBytes) / float64(p.CapacityBytes))
		}
	}
}

// decided counts what policies have taken since the loop last looked; seen is what was counted.
func (m *metrics) decided(now, seen map[string]time.Duration) {
	for name, d := range now {
		if more := d - seen[name]; more > 0 {
			m.policies.With(name).Add(more.Seconds())
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
		m.hits.With(reused.Tier).Add(float64(reused.Tokens))
	}
}

// guessed counts what guessing has brought since before.
func (m *metrics) guessed(now engine.Speculation, before *engine.Speculation) {
	m.drafted.Add(float64(now.Drafted - before.Drafted))
	m.accepted.Add(float64(now.Accepted - before.Accepted))
	*before = now
}

func (m *metrics) finished(f Finish) { m.succeeded.With(string(f)).Add(1) }

func (m *metrics) handler() http.Handler { return m.meter.Handler() }

// alias adds a second set of names for dashboards of another server.
func (m *metrics) alias(of string) error {
	switch of {
	case "":
		return nil
	case "llamacpp":
	default:
		return fmt.Errorf("serve: metrics alias %q, want llamacpp", of)
	}
	for name, of := range map[string]meter.Metric{
		"llamacpp:requests_processing": m.running.Metric, "llamacpp:requests_deferred": m.waiting.Metric,
		"llamacpp:prompt_tokens_total": m.promptTokens.Metric, "llamacpp:tokens_predicted_total": m.generated.Metric,
	} {
		m.meter.Alias(name, "The same as Terrace's own, under llama.cpp's name.", of)
	}
	return nil
}

// Package meter is the seam between a server and what counts for it: Prometheus's in serve/meter/prom, or nothing but sums ([Sums]).
package meter

import (
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// Kind is what a metric does.
type Kind uint8

const (
	Counter   Kind = iota // only grows
	Gauge                 // is set
	Histogram             // observes, in Desc.Buckets
)

// Desc describes a metric; names and units are Prometheus's.
type Desc struct {
	Kind    Kind
	Name    string
	Help    string
	Labels  []string
	Buckets []float64
	// Func is asked for the value of a Counter or Gauge without labels; nil = it is counted by its series.
	Func func() float64
}

// Series is a metric with values for its labels.
type Series interface {
	Add(x float64)     // Counter, Gauge
	Set(x float64)     // Gauge
	Observe(x float64) // Histogram
}

// Metric is what a Meter has made of a Desc.
type Metric interface {
	// With is the series of label values, in the order of Desc.Labels.
	With(labels ...string) Series
	// Drop forgets a series.
	Drop(labels ...string)
	// Value is the sum over the series of a Counter or Gauge.
	Value() float64
}

// Meter counts for a server. Several goroutines may use what it makes.
type Meter interface {
	// New registers a metric; a name is used once.
	New(d Desc) Metric
	// Alias gives a metric without labels another name too.
	Alias(name, help string, of Metric)
	// Process registers what the process takes.
	Process()
	// Handler shows all metrics, and those of others made by the same maker under a label model.
	Handler(others ...Member) http.Handler
}

// Member is the meter of one of several models.
type Member struct {
	Model string
	Meter Meter
}

// Sums counts without showing anything: what a server wants to know of itself.
type Sums struct{}

// New implements Meter.
func (Sums) New(Desc) Metric { return &sums{} }

// Alias implements Meter.
func (Sums) Alias(string, string, Metric) {}

// Process implements Meter.
func (Sums) Process() {}

// Handler implements Meter: 404.
func (Sums) Handler(...Member) http.Handler { return http.NotFoundHandler() }

type sums struct {
	mu     sync.Mutex
	series map[string]*sum
}

// With implements Metric.
func (m *sums) With(labels ...string) Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(labels, "\x00")
	if m.series[key] == nil {
		if m.series == nil {
			m.series = map[string]*sum{}
		}
		m.series[key] = &sum{}
	}
	return m.series[key]
}

// Drop implements Metric.
func (m *sums) Drop(labels ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.series, strings.Join(labels, "\x00"))
}

// Value implements Metric.
func (m *sums) Value() (total float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.series {
		total += s.value()
	}
	return total
}

// sum is a series: the bits of a float64.
type sum struct{ bits atomic.Uint64 }

func (s *sum) value() float64 { return math.Float64frombits(s.bits.Load()) }

func (s *sum) Add(x float64) {
	for {
		old := s.bits.Load()
		if s.bits.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+x)) {
			return
		}
	}
}

func (s *sum) Set(x float64) { s.bits.Store(math.Float64bits(x)) }

func (s *sum) Observe(float64) {}

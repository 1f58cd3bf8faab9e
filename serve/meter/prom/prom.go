// Package prom counts with Prometheus's client.
package prom

import (
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"terrace/serve/meter"
)

// Meter is a registry of its own.
type Meter struct{ *prometheus.Registry }

// New makes one.
func New() meter.Meter { return Meter{prometheus.NewRegistry()} }

// metric is one of the three kinds; the others are nil.
type metric struct {
	counters   *prometheus.CounterVec
	gauges     *prometheus.GaugeVec
	histograms *prometheus.HistogramVec
	of         prometheus.Collector
}

// New implements meter.Meter.
func (m Meter) New(d meter.Desc) meter.Metric {
	out := &metric{}
	switch {
	case d.Func != nil && d.Kind == meter.Counter:
		out.of = prometheus.NewCounterFunc(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Func)
	case d.Func != nil:
		out.of = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Func)
	case d.Kind == meter.Counter:
		out.counters = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
		out.of = out.counters
	case d.Kind == meter.Gauge:
		out.gauges = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
		out.of = out.gauges
	default:
		out.histograms = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
		out.of = out.histograms
	}
	m.MustRegister(out.of)
	if len(d.Labels) == 0 && d.Func == nil {
		out.With() // shown from the beginning
	}
	return out
}

// series is one of the three kinds.
type series struct {
	counter   prometheus.Counter
	gauge     prometheus.Gauge
	histogram prometheus.Observer
}

// With implements meter.Metric.
func (m *metric) With(labels ...string) meter.Series {
	switch {
	case m.counters != nil:
		return series{counter: m.counters.WithLabelValues(labels...)}
	case m.gauges != nil:
		return series{gauge: m.gauges.WithLabelValues(labels...)}
	}
	return series{histogram: m.histograms.WithLabelValues(labels...)}
}

// Drop implements meter.Metric.
func (m *metric) Drop(labels ...string) {
	switch {
	case m.counters != nil:
		m.counters.DeleteLabelValues(labels...)
	case m.gauges != nil:
		m.gauges.DeleteLabelValues(labels...)
	case m.histograms != nil:
		m.histograms.DeleteLabelValues(labels...)
	}
}

// Value implements meter.Metric.
func (m *metric) Value() (total float64) {
	all := make(chan prometheus.Metric)
	go func() { m.of.Collect(all); close(all) }()
	for x := range all {
		var now dto.Metric
		if x.Write(&now) == nil {
			total += now.GetCounter().GetValue() + now.GetGauge().GetValue()
		}
	}
	return total
}

func (s series) Add(x float64) {
	if s.counter != nil {
		s.counter.Add(x)
	} else {
		s.gauge.Add(x)
	}
}

func (s series) Set(x float64)     { s.gauge.Set(x) }
func (s series) Observe(x float64) { s.histogram.Observe(x) }

// Alias implements meter.Meter.
func (m Meter) Alias(name, help string, of meter.Metric) {
	from := of.(*metric)
	if from.counters != nil {
		m.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, from.Value))
		return
	}
	m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, from.Value))
}

// Process implements meter.Meter.
func (m Meter) Process() {
	m.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Handler implements meter.Meter.
func (m Meter) Handler(others ...meter.Member) http.Handler {
	all := prometheus.Gatherers{m.Registry}
	for _, o := range others {
		all = append(all, labelled{o.Meter.(Meter).Registry, o.Model})
	}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{})
}

// labelled gives a registry's metrics the name of their model, but those of the process.
type labelled struct {
	of    *prometheus.Registry
	model string
}

// Gather implements prometheus.Gatherer.
func (l labelled) Gather() ([]*dto.MetricFamily, error) {
	families, err := l.of.Gather()
	families = slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
		return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
	})
	name := "model"
	for _, f := range families {
		for _, m := range f.Metric {
			m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &l.model})
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
	}
	return families, err
}

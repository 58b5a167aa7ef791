package serve

import (
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/sessions"
)

// bounds are the upper bounds of the histograms of seconds.
var bounds = []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100}

// metrics counts requests. Labels are routes, methods of routes and statuses, so that their
// number does not depend on clients.
type metrics struct {
	methods  []string
	registry *prometheus.Registry

	requests   *prometheus.CounterVec
	times      *prometheus.HistogramVec
	firstToken prometheus.Histogram
}

// newMetrics returns metrics of routes.
func newMetrics(s *Server, routes []route) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "farfield_http_requests_total", Help: "Answered requests."}, []string{"method", "path", "status"}),
		times: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "farfield_http_request_seconds", Buckets: bounds,
			Help: "Time from the header of a request to the end of its answer."}, []string{"path"}),
		firstToken: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "farfield_first_token_seconds", Buckets: bounds,
			Help: "Time from the body of a request that draws tokens to its first token."}),
	}
	m.registry.MustRegister(m.requests, m.times, m.firstToken, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), stateMetrics{s})
	for _, r := range routes {
		m.times.WithLabelValues(r.path)
		if !slices.Contains(m.methods, r.method) {
			m.methods = append(m.methods, r.method)
		}
	}
	return m
}

// addRequest counts an answer.
func (m *metrics) addRequest(method, path string, status int, d time.Duration) {
	if !slices.Contains(m.methods, method) {
		method = "other"
	}
	m.requests.WithLabelValues(method, path, strconv.Itoa(status)).Inc()
	m.times.WithLabelValues(path).Observe(d.Seconds())
}

// serverNumbers are numbers of a server that are read when they are asked for.
var serverNumbers = []number[*Server]{
	newNumber("farfield_http_requests_running", gauge, "Requests that are being answered.", func(s *Server) float64 { return float64(s.running.Load()) }),
	newNumber("farfield_http_body_bytes", gauge, "Bytes of the bodies of requests that are not answered.", func(s *Server) float64 { return float64(s.bodies.Load()) }),
	newNumber("farfield_model_bytes", gauge, "Bytes of the weights, of a decoder with their packed copy.", func(s *Server) float64 { return float64(s.o.ModelBytes) }),
	newNumber("farfield_resident_bytes", gauge, "Resident memory of the process; 0: unknown.", func(*Server) float64 { return float64(machine.ResidentMemory()) }),
	newNumber("farfield_peak_bytes", gauge, "Peak memory of the process.", func(*Server) float64 { return float64(machine.PeakMemory()) }),
	newNumber("farfield_goroutines", gauge, "Goroutines.", func(*Server) float64 { return float64(runtime.NumGoroutine()) }),
	newNumber("farfield_heap_bytes", gauge, "Bytes of the program's objects.", func(*Server) float64 {
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return float64(mem.HeapAlloc)
	}),
	newNumber("farfield_open_files", gauge, "Open files and connections; 0: unknown.", func(*Server) float64 {
		files, _ := os.ReadDir("/proc/self/fd")
		return float64(len(files))
	}),
	newNumber("farfield_start_time_seconds", gauge, "Time of the start, in seconds since 1970.", func(s *Server) float64 { return float64(s.started.Unix()) }),
}

// sessionNumbers are numbers of the sessions.
var sessionNumbers = []number[sessions.Stats]{
	newNumber("farfield_sessions", gauge, "Sessions held.", func(t sessions.Stats) float64 { return float64(t.Sessions) }),
	newNumber("farfield_sessions_damaged", gauge, "Sessions of the store whose records are damaged.", func(t sessions.Stats) float64 { return float64(t.DamagedSessions) }),
	newNumber("farfield_sessions_expired_total", counter, "Sessions in memory alone that were idle and made room for others.", func(t sessions.Stats) float64 { return float64(t.Expired) }),
	newNumber("farfield_states_recomputed_total", counter, "States of sessions in memory alone that made room for others, and are computed again.", func(t sessions.Stats) float64 { return float64(t.Recomputed) }),
	newNumber("farfield_session_requests", gauge, "Requests of the model that run or wait.", func(t sessions.Stats) float64 { return float64(t.Running) }),
	newNumber("farfield_state_bytes", gauge, "Bytes of sessions in memory.", func(t sessions.Stats) float64 { return float64(t.StateBytes) }),
	newNumber("farfield_prefix_bytes", gauge, "Bytes of prefixes in memory.", func(t sessions.Stats) float64 { return float64(t.PrefixBytes) }),
	newNumber("farfield_work_bytes", gauge, "Bytes of states of running requests, beside the states of sessions.", func(t sessions.Stats) float64 { return float64(t.WorkBytes) }),
	newNumber("farfield_store_bytes", gauge, "Bytes of snapshots on disk.", func(t sessions.Stats) float64 { return float64(t.DiskBytes) }),
	newNumber("farfield_store_errors_total", counter, "Writes of the store that failed.", func(t sessions.Stats) float64 { return float64(t.StoreErrors) }),
	newNumber("farfield_rounds_total", counter, "Packed steps of the model.", func(t sessions.Stats) float64 { return float64(t.Rounds) }),
	newNumber("farfield_tokens_read_total", counter, "Tokens that the model has read, of prompts and drawn.", func(t sessions.Stats) float64 { return float64(t.TokensRead) }),
	newNumber("farfield_tokens_reused_total", counter, "Tokens of prompts whose state was known.", func(t sessions.Stats) float64 { return float64(t.TokensReused) }),
	newNumber("farfield_tokens_drawn_total", counter, "Tokens that the model has drawn.", func(t sessions.Stats) float64 { return float64(t.TokensDrawn) }),
	newNumber("farfield_tokens_replayed_total", counter, "Tokens that were read a second time, from the log.", func(t sessions.Stats) float64 { return float64(t.Replayed) }),
	newNumber("farfield_states_restored_total", counter, "States that were read from disk.", func(t sessions.Stats) float64 { return float64(t.Restored) }),
	newNumber("farfield_snapshots_dropped_total", counter, "Snapshots that were removed because the disk was full.", func(t sessions.Stats) float64 { return float64(t.Dropped) }),
	newNumber("farfield_snapshots_damaged_total", counter, "Snapshots that were refused because of their bytes.", func(t sessions.Stats) float64 { return float64(t.Damaged) }),
}

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// number is a number of something.
type number[X any] struct {
	description *prometheus.Desc
	kind        prometheus.ValueType
	read        func(x X) float64
}

func newNumber[X any](name string, kind prometheus.ValueType, help string, read func(x X) float64) number[X] {
	return number[X]{prometheus.NewDesc(name, help, nil, nil), kind, read}
}

// collect sends a number of x.
func (n *number[X]) collect(x X, to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(n.description, n.kind, n.read(x))
}

// stateMetrics collects the numbers of a server and its sessions.
type stateMetrics struct{ *Server }

// Describe sends the descriptions of all numbers.
func (s stateMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, n := range serverNumbers {
		to <- n.description
	}
	for _, n := range sessionNumbers {
		to <- n.description
	}
}

// Collect sends all numbers.
func (s stateMetrics) Collect(to chan<- prometheus.Metric) {
	for _, n := range serverNumbers {
		n.collect(s.Server, to)
	}
	if s.o.Sessions == nil {
		return
	}
	stats := s.o.Sessions.Stats()
	for _, n := range sessionNumbers {
		n.collect(stats, to)
	}
}

// printMetrics answers /metrics.
func (s *Server) printMetrics(w http.ResponseWriter, r *http.Request) error {
	promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

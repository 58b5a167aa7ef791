package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/machine"
)

// bounds are the upper bounds of the histogram of seconds.
var bounds = [...]float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100}

// metrics counts requests. Labels are routes, methods of routes and statuses, so that their
// number does not depend on clients.
type metrics struct {
	methods []string

	mu       sync.Mutex
	requests map[requestLabel]int64
	times    map[string]*histogram // by path
}

type requestLabel struct {
	method, path string
	status       int
}

type histogram struct {
	buckets [len(bounds)]int64
	count   int64
	sum     float64
}

// newMetrics returns metrics of routes.
func newMetrics(routes []route) *metrics {
	m := &metrics{requests: map[requestLabel]int64{}, times: map[string]*histogram{}}
	for _, r := range routes {
		m.times[r.path] = new(histogram)
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[requestLabel{method, path, status}]++
	h := m.times[path]
	h.count++
	h.sum += d.Seconds()
	for i, b := range bounds {
		if d.Seconds() <= b {
			h.buckets[i]++
		}
	}
}

// appendTo writes the counts in Prometheus' text format, in the order of their labels.
func (m *metrics) appendTo(b *bytes.Buffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var lines []string
	for l, n := range m.requests {
		lines = append(lines, fmt.Sprintf("farfield_http_requests_total{method=%q,path=%q,status=\"%d\"} %d\n", l.method, l.path, l.status, n))
	}
	slices.Sort(lines)
	writeHeader(b, "farfield_http_requests_total", "counter", "Answered requests.")
	for _, line := range lines {
		b.WriteString(line)
	}
	writeHeader(b, "farfield_http_request_seconds", "histogram", "Time from the header of a request to the end of its answer.")
	var paths []string
	for path, h := range m.times {
		if h.count > 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		h := m.times[path]
		for i, bound := range bounds {
			fmt.Fprintf(b, "farfield_http_request_seconds_bucket{path=%q,le=\"%g\"} %d\n", path, bound, h.buckets[i])
		}
		fmt.Fprintf(b, "farfield_http_request_seconds_bucket{path=%q,le=\"+Inf\"} %d\n", path, h.count)
		fmt.Fprintf(b, "farfield_http_request_seconds_sum{path=%q} %g\nfarfield_http_request_seconds_count{path=%q} %d\n", path, h.sum, path, h.count)
	}
}

// writeHeader writes the help and the type of a metric.
func writeHeader(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// printMetrics answers /metrics.
func (s *Server) printMetrics(w http.ResponseWriter, _ *http.Request) error {
	var b bytes.Buffer
	s.metrics.appendTo(&b)
	one := func(name, kind, help string, value float64) {
		writeHeader(&b, name, kind, help)
		b.WriteString(name + " " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
	}
	one("farfield_http_requests_running", "gauge", "Requests that are being answered.", float64(s.running.Load()))
	one("farfield_http_body_bytes", "gauge", "Bytes of the bodies of requests that are not answered.", float64(s.bodies.Load()))
	if s.o.Sessions != nil {
		t := s.o.Sessions.Stats()
		one("farfield_sessions", "gauge", "Sessions held.", float64(t.Sessions))
		one("farfield_sessions_damaged", "gauge", "Sessions of the store whose records are damaged.", float64(t.DamagedSessions))
		one("farfield_sessions_expired_total", "counter", "Sessions in memory alone that were idle and made room for others.", float64(t.Expired))
		one("farfield_session_requests", "gauge", "Requests of the model that run or wait.", float64(t.Running))
		one("farfield_state_bytes", "gauge", "Bytes of sessions in memory.", float64(t.StateBytes))
		one("farfield_prefix_bytes", "gauge", "Bytes of prefixes in memory.", float64(t.PrefixBytes))
		one("farfield_work_bytes", "gauge", "Bytes of states of running requests, beside the states of sessions.", float64(t.WorkBytes))
		one("farfield_store_bytes", "gauge", "Bytes of snapshots on disk.", float64(t.DiskBytes))
		one("farfield_rounds_total", "counter", "Packed steps of the model.", float64(t.Rounds))
		one("farfield_tokens_read_total", "counter", "Tokens that the model has read, of prompts and drawn.", float64(t.TokensRead))
		one("farfield_tokens_reused_total", "counter", "Tokens of prompts whose state was known.", float64(t.TokensReused))
		one("farfield_tokens_drawn_total", "counter", "Tokens that the model has drawn.", float64(t.TokensDrawn))
		one("farfield_tokens_replayed_total", "counter", "Tokens that were read a second time, from the log.", float64(t.Replayed))
		one("farfield_states_restored_total", "counter", "States that were read from disk.", float64(t.Restored))
		one("farfield_snapshots_dropped_total", "counter", "Snapshots that were removed because the disk was full.", float64(t.Dropped))
		one("farfield_snapshots_damaged_total", "counter", "Snapshots that were refused because of their bytes.", float64(t.Damaged))
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	one("farfield_heap_bytes", "gauge", "Bytes of the program's objects.", float64(mem.HeapAlloc))
	one("farfield_model_bytes", "gauge", "Bytes of the weights, of a decoder with their packed copy.", float64(s.o.ModelBytes))
	one("farfield_resident_bytes", "gauge", "Resident memory of the process; 0: unknown.", float64(machine.ResidentMemory()))
	one("farfield_peak_bytes", "gauge", "Peak memory of the process.", float64(machine.PeakMemory()))
	one("farfield_goroutines", "gauge", "Goroutines.", float64(runtime.NumGoroutine()))
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		one("farfield_open_files", "gauge", "Open files and connections.", float64(len(files)))
	}
	one("farfield_start_time_seconds", "gauge", "Time of the start, in seconds since 1970.", float64(s.started.Unix()))
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, err := w.Write(b.Bytes())
	return err
}

package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is the server under load.
type target struct {
	url     string
	process int    // 0: unknown
	store   string // "": unknown
}

// sample is the state of the server at a time.
type sample struct {
	resident   int64 // bytes of memory; 0: unknown
	heap       int64
	goroutines int64
	files      int64 // of the store
	stored     int64 // bytes of the store
	sessions   int64
}

// readSample returns the state of the server. It returns an error if /metrics cannot be read.
func (t *target) readSample(ctx context.Context) (s sample, err error) {
	r, err := http.NewRequestWithContext(ctx, "GET", t.url+"/metrics", nil)
	if err != nil {
		return s, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return s, err
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return s, fmt.Errorf("/metrics: status %d", a.StatusCode)
	}
	fields := map[string]*int64{"farfield_heap_bytes": &s.heap, "farfield_goroutines": &s.goroutines, "farfield_sessions": &s.sessions}
	lines := bufio.NewScanner(a.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if field := fields[name]; field != nil {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return s, err
			}
			*field = int64(x)
		}
	}
	s.resident = readResident(t.process)
	if t.store != "" {
		// A file may vanish while the folder is read.
		_ = filepath.WalkDir(t.store, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				s.files++
				s.stored += info.Size()
			}
			return nil
		})
	}
	return s, lines.Err()
}

// readResident returns the resident memory of a process in bytes, 0 where it is unknown.
func readResident(process int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64)
	return n << 10
}

// trend is a value of samples in the first and the last tenth of a run.
type trend struct {
	name        string
	first, last float64 // medians
	largest     float64
	hasGrown    bool
}

// describeTrends returns the trends of samples. A value has grown if its median in the last tenth
// exceeds a tenth more than the first, and a floor.
func describeTrends(samples []sample) []trend {
	tenth := max(1, len(samples)/10)
	var list []trend
	for _, v := range []struct {
		name  string
		floor float64
		value func(s *sample) int64
	}{
		{"resident memory, MB", 16, func(s *sample) int64 { return s.resident / 1e6 }},
		{"heap, MB", 16, func(s *sample) int64 { return s.heap / 1e6 }},
		{"goroutines", 16, func(s *sample) int64 { return s.goroutines }},
		{"files of the store", 64, func(s *sample) int64 { return s.files }},
		{"bytes of the store, MB", 8, func(s *sample) int64 { return s.stored / 1e6 }},
		{"sessions", 32, func(s *sample) int64 { return s.sessions }},
	} {
		values := make([]float64, len(samples))
		for i := range samples {
			values[i] = float64(v.value(&samples[i]))
		}
		t := trend{name: v.name, first: median(values[:tenth]), last: median(values[len(values)-tenth:]), largest: slices.Max(values)}
		t.hasGrown = t.last > 1.1*t.first+v.floor
		list = append(list, t)
	}
	return list
}

// median returns the median of values, which it does not change.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// times is a histogram of durations whose buckets grow by 2 %.
type times struct {
	buckets [1024]int64
	count   int64
	longest time.Duration
}

// bucketBase is the upper bound of the first bucket.
const bucketBase = 10 * time.Microsecond

// add counts a duration.
func (h *times) add(d time.Duration) {
	h.count++
	h.longest = max(h.longest, d)
	i := math.Log(max(1, float64(d)/float64(bucketBase))) / math.Log(1.02)
	h.buckets[min(int(i), len(h.buckets)-1)]++
}

// merge adds the counts of other.
func (h *times) merge(other *times) {
	h.count += other.count
	h.longest = max(h.longest, other.longest)
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
}

// quantile returns the duration below which a share of the durations lies.
func (h *times) quantile(share float64) time.Duration {
	rest := int64(share * float64(h.count))
	for i, n := range h.buckets {
		if rest -= n; rest < 0 {
			return time.Duration(float64(bucketBase) * math.Pow(1.02, float64(i)+0.5))
		}
	}
	return h.longest
}

// print prints the median, the 99th percentile and the longest duration.
func (h *times) print(w io.Writer, name string) {
	if h.count == 0 {
		return
	}
	middle := h.quantile(0.5)
	fmt.Fprintf(w, "%s: median %.1f ms, p99 %.1f ms, longest %.1f ms (%.1f times the median), %d counted\n", name,
		milliseconds(middle), milliseconds(h.quantile(0.99)), milliseconds(h.longest), float64(h.longest)/float64(middle), h.count)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

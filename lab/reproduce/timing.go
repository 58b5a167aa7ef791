package reproduce

import (
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/internal/machine"
)

// timing is how long a call took.
type timing struct {
	Curve   string  `json:"curve"`
	N       int     `json:"n"`
	Ms      float64 `json:"ms"` // median; 0: not measured
	Spread  float64 `json:"spread"`
	GFLOPS  float64 `json:"gflops"`
	Share   float64 `json:"share"` // of the peak of the same rounds
	FLOPs   float64 `json:"flops"`
	Bytes   float64 `json:"bytes"`             // beyond inputs and outputs
	Rounds  int     `json:"rounds"`            // that the median is of
	Skipped string  `json:"skipped,omitempty"` // why it was not measured
}

// timed is a case on its way to a timing.
type timed struct {
	curve string
	n     int
	c     *bench.Case
}

// race times cases in turns, each for about that long. What would not fit in
// memory, or would take longer than limit at the speed of half the peak, is
// left out.
func (w *Work) race(list []timed, each, limit time.Duration) ([]timing, error) {
	m := bench.DescribeMachine(20 * time.Millisecond)
	why := make([]string, len(list))
	var cases []*bench.Case
	for i, x := range list {
		switch {
		case x.c.Need > float64(machine.FreeMemory()):
			why[i] = "does not fit in memory"
		case m.TrainingSeconds(x.c.FLOPs) > limit.Seconds():
			why[i] = "takes too long"
		default:
			cases = append(cases, x.c)
		}
	}
	err := bench.Measure(cases, each, w.do, func(p bench.Progress) { w.reportShare(p.Elapsed.Seconds() / max(p.Total.Seconds(), 1e-9)) })
	if err != nil {
		return nil, err
	}
	var out []timing
	for i, x := range list {
		l := &x.c.Line
		out = append(out, timing{
			Curve: x.curve, N: x.n, Ms: l.Ms, Spread: l.Spread, GFLOPS: l.GFLOPS, Share: l.Share,
			FLOPs: x.c.FLOPs, Bytes: float64(l.ExtraBytes), Rounds: l.Rounds, Skipped: why[i],
		})
	}
	return out, nil
}

// raceTime estimates the time of a race of the given cases.
func raceTime(cases int, each time.Duration) time.Duration {
	return time.Duration(cases) * each * 5 / 4
}

// curve returns the measured points of one curve: lengths and seconds.
func curve(list []timing, name string) (n, seconds []float64) {
	for _, t := range list {
		if t.Curve == name && t.Ms > 0 {
			n, seconds = append(n, float64(t.N)), append(seconds, t.Ms/1e3)
		}
	}
	return n, seconds
}

// findTiming returns the timing of a curve at a length.
func findTiming(list []timing, name string, n int) (t timing, found bool) {
	for _, t := range list {
		if t.Curve == name && t.N == n && t.Ms > 0 {
			return t, true
		}
	}
	return timing{}, false
}

// shared returns the lengths that both curves were measured at, and the seconds
// of each.
func shared(list []timing, a, b string) (n, sa, sb []float64) {
	for _, t := range list {
		if t.Curve != a || t.Ms == 0 {
			continue
		}
		if other, found := findTiming(list, b, t.N); found {
			n, sa, sb = append(n, float64(t.N)), append(sa, t.Ms/1e3), append(sb, other.Ms/1e3)
		}
	}
	return n, sa, sb
}

// crossing returns the length from which on curve b is faster than a.
func crossing(list []timing, a, b string) (n float64, found bool) {
	return bench.FindCrossover(shared(list, a, b))
}

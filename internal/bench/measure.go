package bench

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/machine"
	"github.com/farfield-ml/farfield/internal/par"
)

const (
	leastRounds = 3
	mostRounds  = 101
	leastRound  = time.Millisecond      // of short calls that are timed together
	shortRound  = 20 * time.Millisecond // below it the first call, which fetches the data, is not timed
	peakTime    = 2 * time.Millisecond  // of the peak, before each round
)

// Progress says how far Measure is.
type Progress struct {
	Case           *Case         // the case that is measured next
	Elapsed, Total time.Duration // Total is estimated
}

// Measure measures the cases and fills in their results. The rounds of the cases take turns, evenly
// over the whole time, so that a disturbance meets all cases alike: the ratio of two lines of one
// Measure is more reliable than either line. Each round measures the peak first. A case gets as
// many rounds as fit in budget, at least 3 and at most 101. The first calls, which bring data into
// the caches, do not count, unless one call takes longer than the whole budget. Cases that do not
// fit into memory together are measured in groups. Measure makes each call through do, which may
// return an error instead; Measure then returns it, and the results so far are filled in. watch,
// unless nil, is called before each case.
func Measure(cases []*Case, budget time.Duration, do func(func() error) error, watch func(Progress)) error {
	defer par.SetThreads(par.Threads())
	t := turns{budget: budget, do: do, watch: watch, total: time.Duration(len(cases)) * budget}
	for len(cases) > 0 {
		free := machine.FreeMemory()
		if free == math.MaxInt64 { // unknown
			free = 16 << 30
		}
		n := countFitting(cases, float64(free)/2)
		if err := t.measureCases(cases[:n]); err != nil {
			return err
		}
		cases = cases[n:]
	}
	return nil
}

// countFitting returns the number of leading cases that fit in memory at once, at least 1.
func countFitting(cases []*Case, memory float64) int {
	sum := 0.0
	for i, c := range cases {
		if sum += c.Need; i > 0 && sum > memory {
			return i
		}
	}
	return len(cases)
}

// turns are the cases that are measured together.
type turns struct {
	budget         time.Duration
	do             func(func() error) error
	watch          func(Progress)
	elapsed, total time.Duration
}

// reportNext reports the next case to watch.
func (t *turns) reportNext(c *Case) {
	if t.watch != nil {
		t.watch(Progress{c, t.elapsed, t.total})
	}
}

// turn is a session whose turn it is again and again.
type turn struct {
	*Session
	planned int // rounds
}

func (t *turns) measureCases(cases []*Case) error {
	var list []*turn
	for _, c := range cases {
		t.reportNext(c)
		var s *Session
		if err := t.do(func() (err error) {
			s, err = c.Open(t.budget)
			return err
		}); err != nil {
			return err
		}
		r := &turn{s, max(leastRounds, min(mostRounds, int(t.budget/s.each)))}
		t.total += time.Duration(r.planned)*r.each - t.budget
		if s.first.spent > t.budget {
			t.addRound(r, s.first)
		}
		list = append(list, r)
	}
	for {
		r := slices.MinFunc(list, func(a, b *turn) int {
			return cmp.Compare(a.progress(), b.progress())
		})
		if r.progress() >= 1 {
			return nil
		}
		t.reportNext(r.c)
		var now Round
		if err := t.do(func() (err error) {
			now, err = r.Round()
			return err
		}); err != nil {
			return err
		}
		t.addRound(r, now)
	}
}

func (t *turns) addRound(r *turn, now Round) {
	r.Add(now)
	t.elapsed += r.each
}

// progress is the place of the next round in the whole of the measurement; 1 if
// there is none.
func (t *turn) progress() float64 {
	if len(t.rounds) == t.planned {
		return 1
	}
	return (float64(len(t.rounds)) + 0.5) / float64(t.planned)
}

// Session is a case whose data is in memory, for repeated measurements.
type Session struct {
	c       *Case
	w       *work
	peak    time.Duration // time in which the peak is measured
	repeats int           // calls in a round
	warmsUp bool          // each round begins with a call that is not timed
	each    time.Duration // time of a round
	first   Round         // the last round that Open made
	rounds  []Round
}

// Open prepares the data of the case and makes the first rounds, which determine how many calls a
// round has and how long it takes. The smallest number of rounds takes about budget, if calls are
// short enough. Open returns the errors of preparing and calling.
func (c *Case) Open(budget time.Duration) (*Session, error) {
	budget /= leastRounds
	c.ISA, c.Machine = kernel.Active[float32]().Name, DescribeCPU().String()
	par.SetThreads(c.Threads)
	w, err := c.open()
	if err != nil {
		return nil, err
	}
	s := &Session{c: c, w: w, peak: min(peakTime, budget), repeats: 1}
	start := time.Now()
	s.first, err = s.Round()
	if s.warmsUp = w.prepare == nil && s.first.spent < shortRound; s.warmsUp {
		for err == nil {
			start = time.Now()
			if s.first, err = s.Round(); s.first.spent >= min(leastRound, budget) {
				break
			}
			s.repeats *= 2
		}
	}
	s.each = time.Since(start)
	return s, err
}

// Round measures the peak, and then the case with one call, or with as many calls as take a
// millisecond. It returns the error of a call.
func (s *Session) Round() (Round, error) {
	par.SetThreads(s.c.Threads)
	peak := Peak(s.c.ISA, s.c.Threads, s.peak)
	if s.warmsUp {
		if err := s.w.call(); err != nil {
			return Round{}, err
		}
	}
	r, err := s.w.runRound(s.repeats)
	r.peak = peak
	return r, err
}

// Add adds a round that the session has made to the results of the case.
func (s *Session) Add(r Round) {
	s.rounds = append(s.rounds, r)
	l := &s.c.Line
	var seconds, peaks []float64
	// Arenas grow, and are lost to the garbage collector, at any time: the round
	// that saw neither has the least.
	extra := int64(math.MaxInt64)
	l.Joules = 0
	for _, r := range s.rounds {
		seconds, peaks = append(seconds, r.seconds), append(peaks, r.peak)
		extra = min(extra, r.bytes)
		l.Joules += r.joules / float64(len(s.rounds))
	}
	t := Median(seconds)
	l.Ms, l.Spread, l.BestMs, l.Rounds = 1e3*t, quartileSpread(seconds), 1e3*seconds[0], len(seconds)
	l.GFLOPS, l.Peak = s.c.FLOPs/t/1e9, Median(peaks)/1e9
	l.Share = l.GFLOPS / l.Peak
	l.ExtraBytes = s.w.held + extra
}

// Restart forgets the rounds that were added.
func (s *Session) Restart() { s.rounds = nil }

// Peak measures for the time d how many operations a second that many threads do together, on as
// many cores as there are.
func Peak(isa string, threads int, d time.Duration) float64 {
	list := make([]float64, min(threads, runtime.GOMAXPROCS(0)))
	var others sync.WaitGroup
	for i := range list[1:] {
		others.Go(func() { list[1+i] = kernel.FMAPeak(isa, d) })
	}
	list[0] = kernel.FMAPeak(isa, d)
	others.Wait()
	sum := 0.0
	for _, p := range list {
		sum += p
	}
	return sum
}

// Round holds the time of each of a few calls.
type Round struct {
	spent   time.Duration // time of all calls
	seconds float64
	peak    float64
	joules  float64
	bytes   int64 // bytes that were allocated, and scratch of one worker
}

func (w *work) runRound(repeats int) (r Round, err error) {
	if w.prepare != nil {
		if err := w.prepare(); err != nil {
			return r, err
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	arena.HighWater()
	energy := processor.readCounters()
	start := time.Now()
	for range repeats {
		if err := w.call(); err != nil {
			return r, err
		}
	}
	r.spent = time.Since(start)
	r.joules = processor.joulesSince(energy)
	scratch := arena.HighWater()
	runtime.ReadMemStats(&after)
	calls := repeats * max(w.calls, 1)
	r.seconds, r.joules = r.spent.Seconds()/float64(calls), r.joules/float64(calls)
	r.bytes = scratch + int64(after.TotalAlloc-before.TotalAlloc)/int64(calls)
	return r, nil
}

// Median sorts x [n] and returns its median; if n is even, the mean of the middle two.
func Median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return 0
	}
	return (x[(n-1)/2] + x[n/2]) / 2
}

// quartileSpread is the distance of the quartiles of x over its median; it sorts x.
func quartileSpread(x []float64) float64 {
	m := Median(x)
	if m == 0 {
		return 0
	}
	n := len(x)
	return (Median(slices.Clone(x[(n+1)/2:])) - Median(slices.Clone(x[:n/2]))) / m
}

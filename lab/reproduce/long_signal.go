package reproduce

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/rng"
)

var longSignal = Row{
	Name:   "long-signal",
	Doc:    "a signal of millions of samples, read from a table and forecast 16 samples ahead from 256: a wave whose frequency drifts, pulses at random places, and noise",
	Source: "a task of this project; the slides name very large signals, of particle physics and astronomy, as uses",
	Claim:  "no table of this setting",
	Seeds:  true, Tunes: true,
	pieces: signalPieces, outcome: signalOutcome,
}

// Samples of the signal, and what a model sees and forecasts of it.
const (
	signalWindow  = 256
	signalHorizon = 16
	pulseEvery    = 2000 // samples from a pulse to the next, in the mean
)

func signalSamples(o *Options) int { return pick(o.Budget, 10_000_000, 100_000_000, 200_000_000) }

// signalData is a signal that was written and read once in a process.
type signalData struct {
	once sync.Once
	src  task.Source
	err  error
	read signalRead
}

// signalRead says what reading took.
type signalRead struct {
	Samples int     `json:"samples"`
	Bytes   int64   `json:"bytes"` // of the table
	Write   float64 `json:"write_s"`
	Read    float64 `json:"read_s"`
	Memory  uint64  `json:"memory"` // bytes that the process took from the system by then
}

var signals [3]signalData // by budget

// openSignal returns the signal of a budget.
func openSignal(o *Options) (*signalData, error) {
	x := &signals[o.Budget]
	x.once.Do(func() { x.src, x.err = x.make(signalSamples(o)) })
	return x, x.err
}

// make writes n samples to a table, and reads it.
func (x *signalData) make(n int) (_ task.Source, err error) {
	f, err := os.CreateTemp("", "long-signal-*.csv")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	begin := time.Now()
	if err := writeSignal(f, n); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	x.read = signalRead{Samples: n, Bytes: info.Size(), Write: time.Since(begin).Seconds()}
	begin = time.Now()
	src, err := task.OpenForecast(f.Name(), task.ForecastOptions{Window: signalWindow, Horizon: signalHorizon})
	if err != nil {
		return nil, err
	}
	x.read.Read = time.Since(begin).Seconds()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	x.read.Memory = m.Sys
	return src, nil
}

// writeSignal writes n samples below a header: a wave whose frequency drifts, pulses that ring and fade, and noise.
func writeSignal(f *os.File, n int) error {
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.WriteString("signal\n"); err != nil {
		return err
	}
	key, phase, pulse, since := rng.New(81), 0.0, 0.0, 0.0
	var line []byte
	for i := range n {
		phase = math.Mod(phase+0.05*(1+0.5*math.Sin(float64(i)/50000)), 2*math.Pi)
		drawn := key.Uint32s(uint64(i))
		if pulse, since = pulse*0.98, since+1; drawn[0] < math.MaxUint32/pulseEvery {
			pulse, since = 2, 0
		}
		noise := float64(drawn[1])/math.MaxUint32 - 0.5
		line = strconv.AppendFloat(line[:0], math.Sin(phase)+pulse*math.Sin(0.5*since)+0.1*noise, 'f', 4, 64)
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}

var signalLessons = lessons(func(o *Options) ([]*lesson, error) {
	l, err := presetLesson("signal", "forecast", pick(o.Budget, 800, 800, 10000), map[string]string{
		"window": fmt.Sprint(signalWindow), "horizon": fmt.Sprint(signalHorizon)})
	if err != nil {
		return nil, err
	}
	c := &l.Config
	c.EvalEvery, c.EvalSamples, c.FinalSamples = max(1, c.Steps/4), 500, 2000
	c.Rate, c.MinRate = 3e-3, 3e-4
	l.open = func(string) (task.Source, error) {
		x, err := openSignal(o)
		if err != nil {
			return nil, err
		}
		return x.src, nil
	}
	l.Methods, l.Seeds = []method{softmax, fastmax2, linear}, pick(o.Budget, 1, 1, 3)
	l.Length, l.Baseline = signalWindow, true
	return []*lesson{l}, nil
})

// signalPieces are the trainings, and what reading takes.
func signalPieces(o *Options) ([]Piece, error) {
	list, err := signalLessons.pieces(o)
	config := struct {
		Samples int `json:"samples"`
	}{signalSamples(o)}
	return append([]Piece{{Name: "read", Config: config, FLOPs: plainLoopCost * 10 * float64(config.Samples), run: func(*Work) (any, error) {
		x, err := openSignal(o)
		if err != nil {
			return nil, err
		}
		return x.read, nil
	}}}, list...), err
}

func signalOutcome(o *Options, r *Results) (*Outcome, error) {
	read, found, err := get[signalRead](r, "read")
	if err != nil {
		return nil, err
	}
	return signalLessons.outcome(func(out *Outcome, list []scored) error {
		if !found {
			return nil
		}
		t := report.Table{Title: "Reading", Head: []string{"samples", "bytes of the table", "s to draw and write it", "s to read it", "million samples a second", "MiB of the process"},
			Note: "Beside whatever else ran. A sample is kept in 8 bytes; windows are cut from it as they are needed. The first eight tenths are to learn from, the last tenth judges."}
		addRow(&t, fmt.Sprint(read.Samples), fmt.Sprint(read.Bytes), digits(read.Write), digits(read.Read), digits(float64(read.Samples)/1e6/read.Read), fmt.Sprint(read.Memory>>20))
		out.Tables = append([]report.Table{t}, out.Tables...)
		out.find("%d samples are read in %s seconds, %s million a second.", read.Samples, digits(read.Read), digits(float64(read.Samples)/1e6/read.Read))
		return nil
	})(o, r)
}

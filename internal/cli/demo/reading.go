package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
	"github.com/farfield-ml/farfield/model"
)

// reader is a model that reads a text in one state.
type reader struct {
	name    string
	model   *model.Model
	session *model.Session

	seconds []float64 // to read the first bytes of the text, by lengths
	memory  []float64 // bytes of the state after them
	bits    []float64 // a byte, over the second half of them
}

// reading is a text that several models read.
type reading struct {
	lengths []float64 // bytes, each twice the one before
	readers []*reader // softmax, its window alone, multipole
	wide    float64   // bits a byte of a wider window alone, over what all have read
}

// The places of the readers.
const (
	softmaxReader = iota
	windowReader
	multipoleReader
)

// measureReading lets models read the first most bytes of a text, by turns, from a length of least bytes that
// doubles. The first model, whose time is quadratic, stops before bytes that would take it longer than
// longest. watch is called with each length. The text needs most+1 bytes.
func measureReading(ctx context.Context, readers []*reader, text string, least, most int, longest time.Duration, watch func(n int)) (*reading, error) {
	if len(text) < most+1 {
		return nil, fmt.Errorf("text: has %d bytes, needs %d", len(text), most+1)
	}
	tokens := make([]int32, len(text))
	for i := range tokens {
		tokens[i] = int32(text[i])
	}
	r := &reading{readers: readers}
	losses := make([]float64, most)
	for _, x := range readers {
		var err error
		if x.session, err = x.model.NewSession(1); err != nil {
			return nil, err
		}
		const warm = 256 // bytes, after which memory and code are there
		n := min(warm, most)
		if err := x.session.Losses(ctx, losses[:n], tokens[:n], tokens[1:n+1], n); err != nil {
			return nil, err
		}
		x.session.Reset()
	}
	for from, to := 0, least; to <= most; from, to = to, 2*to {
		watch(to)
		r.lengths = append(r.lengths, float64(to))
		for i, x := range readers {
			last := len(r.lengths) - 2
			if len(x.seconds) != last+1 || i == softmaxReader && last > 0 && 4*(x.seconds[last]-x.seconds[last-1]) > longest.Seconds() {
				continue
			}
			start := time.Now()
			if err := x.session.Losses(ctx, losses[from:to], tokens[from:to], tokens[from+1:to+1], to-from); err != nil {
				return nil, err
			}
			spent, nats := max(time.Since(start).Seconds(), 1e-6), 0.0 // a coarse clock may not have moved
			if last >= 0 {
				spent += x.seconds[last]
			}
			half := losses[max(from, to/2):to]
			for _, loss := range half {
				nats += loss
			}
			x.seconds = append(x.seconds, spent)
			x.memory = append(x.memory, float64(x.session.Bytes()))
			x.bits = append(x.bits, nats/math.Ln2/float64(len(half)))
		}
	}
	for _, x := range readers {
		x.session = nil
	}
	if len(r.lengths) < 2 {
		return nil, errors.New("text: is too short to compare two lengths")
	}
	return r, nil
}

// at returns what reader i takes at length j, and whether it was measured. Beyond its last length, time goes
// on as a·n + b·n² through the last two and memory along the line through them.
func (r *reading) at(i, j int) (seconds, memory float64, measured bool) {
	x := r.readers[i]
	last := len(x.seconds) - 1
	if j <= last {
		return x.seconds[j], x.memory[j], true
	}
	n, n1, n2 := r.lengths[j], r.lengths[last-1], r.lengths[last]
	t1, t2 := x.seconds[last-1], x.seconds[last]
	b := max((t2/n2-t1/n1)/(n2-n1), 0)
	a := t2/n2 - b*n2
	return a*n + b*n*n, x.memory[last] + (x.memory[last]-x.memory[last-1])/(n2-n1)*(n-n2), false
}

// shared returns the number of lengths that all readers have read.
func (r *reading) shared() int {
	n := len(r.lengths)
	for _, x := range r.readers {
		n = min(n, len(x.seconds))
	}
	return n
}

// meanBits returns the mean bits a byte of reader i over the bytes after the first half of the shortest length, as far as
// all have read.
func (r *reading) meanBits(i int) float64 {
	var bits, bytes float64
	for j := range r.shared() {
		n := r.lengths[j] / 2
		bits, bytes = bits+n*r.readers[i].bits[j], bytes+n
	}
	return bits / bytes
}

// crossover returns the length from which on multipole takes less time than softmax; 0: none was met.
func (r *reading) crossover() float64 {
	n := r.shared()
	at, found := bench.FindCrossover(r.lengths[:n], r.readers[softmaxReader].seconds[:n], r.readers[multipoleReader].seconds[:n])
	if !found {
		return 0
	}
	return at
}

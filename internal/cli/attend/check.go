package attend

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/stream"
)

// rowCheck is the difference of some rows of a stream from a direct evaluation.
type rowCheck struct {
	Rows    []int64        `json:"rows"`
	Size    display.Number `json:"max_o"`    // largest |o| of them
	Error   display.Number `json:"error"`    // largest difference
	Worst   display.Number `json:"relative"` // of a row, by the largest number of the row
	Bound   float64        `json:"bound"`    // of a difference by |v| and |o|; 0: none is known
	Share   display.Number `json:"of_bound"` // largest difference in parts of it
	Seconds float64        `json:"seconds"`
}

// streamRows is the stream of random numbers that rows to check are drawn from.
const streamRows = 1 << 32

// drawRows draws up to c.Check written rows of a stream of shape s: all of them if there are no more. It returns
// an error if memory has no room for them.
func drawRows(c *Command, s stream.Shape, memory int64) ([]int64, error) {
	every, written := max(c.RowsEvery, 1), int64(0)
	if s.N > 0 {
		written = (s.N-1)/every + 1
	}
	n := min(int64(c.Check), written)
	if room := memory / stream.RowBytes(s); n > room {
		return nil, fmt.Errorf("%d rows; --memory %d has room for %d", n, memory, room)
	}
	rows, key := make([]int64, n), rng.New(c.Seed).Fold(streamRows)
	for i := range rows {
		rows[i] = int64(i)
		if n < written {
			rows[i] = int64(key.Intn(uint64(i), int(written)))
		}
		rows[i] *= every
	}
	slices.Sort(rows)
	return slices.Compact(rows), nil
}

// checkRows holds rows of a finished stream against sums over all keys. Their weights are those of the direct
// form of m, since the reference in package oracle knows no names and settings: it finds errors of the linear
// form, of sums and of files, and none of the direct form's weights, which stream.TestComputedRowsEqualTheTextbook
// holds against the reference.
func checkRows(c *Command, e *env.Env, src stream.Source, out *stream.Output, r *stream.Report, m attention.Mechanism, rows []int64, memory int64) (*rowCheck, error) {
	start := time.Now()
	list := &rowCheck{Rows: rows}
	bar := progress.NewStream(e)
	want, err := stream.ComputeRows(e.Context, m, src, c.Causal, rows, memory, bar.Show)
	bar.Clear()
	if err != nil {
		return nil, err
	}
	got := make([]float32, r.Shape.Dv)
	for h := range r.Shape.B * r.Shape.H {
		for j, i := range rows {
			if err := e.Context.Err(); err != nil {
				return nil, err
			}
			if err := out.ReadRow(got, h/r.Shape.H, h%r.Shape.H, i); err != nil {
				return nil, err
			}
			row := want[(h*len(rows)+j)*r.Shape.Dv:][:r.Shape.Dv]
			size, worst := check.MaxAbs(row), 0.0
			for c, x := range row {
				worst = max(worst, math.Abs(float64(got[c])-x))
			}
			list.Size, list.Error = max(list.Size, display.Number(size)), max(list.Error, display.Number(worst))
			list.Worst = max(list.Worst, ratio(worst, size))
		}
	}
	if m.Traits().Positive {
		// |v| is at least as large as |o|, a mean of values.
		if rows := stream.RowsBound(m, r.Shape); r.Bound > 0 && rows > 0 {
			list.Bound = r.Bound + rows
			list.Share = ratio(float64(list.Error), list.Bound*2*float64(list.Size))
		}
	}
	list.Seconds = time.Since(start).Seconds()
	return list, nil
}

// ratio returns a/b, and 0 where a is 0.
func ratio(a, b float64) display.Number {
	if a == 0 {
		return 0
	}
	return display.Number(a / b)
}

func (r *rowCheck) print(w io.Writer) {
	if r == nil {
		return
	}
	bound := ""
	if r.Bound > 0 {
		bound = fmt.Sprintf(", %.2g of the bound", r.Share)
	}
	fmt.Fprintf(w, "%d rows against sums over all keys: off by at most %.2g of |o| up to %.3g (%.2g of a row's largest%s), in %.1f s\n",
		len(r.Rows), r.Error, r.Size, r.Worst, bound, r.Seconds)
}

// verdict is an error where a row is beyond the bound.
func (r *rowCheck) verdict() error {
	if r != nil && r.Bound > 0 && !(r.Share <= 1) {
		return fmt.Errorf("--check: a row is off by %g, the bound is %g", r.Error, r.Bound*2*float64(r.Size))
	}
	return nil
}

package attention

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

// ErrNonFinite matches, with errors.Is, every error about results that are NaN or infinite.
var ErrNonFinite = errors.New("not finite")

// NonFiniteError reports rows of an output that hold NaN or infinities: a product or sum left
// the range of the element type, or a denominator was 0. All rows are written nevertheless, and
// a state has absorbed its tokens. Forward returns it if there is no Saved to count the rows
// in.
type NonFiniteError struct {
	Rows, AllRows int64  // rows that are not finite, and all rows
	First         [3]int // batch row, head and query of the first
}

// Error returns the text of the error.
func (e *NonFiniteError) Error() string {
	return fmt.Sprintf("o: %d of %d rows are not finite, the first is query %d of head %d of batch row %d: numbers left the range of the element type, or a denominator is 0",
		e.Rows, e.AllRows, e.First[2], e.First[1], e.First[0])
}

// Is reports whether target is ErrNonFinite.
func (e *NonFiniteError) Is(target error) bool { return target == ErrNonFinite }

// IsNonFinite reports whether err is an error about results that are not finite.
func IsNonFinite(err error) bool { return errors.Is(err, ErrNonFinite) }

// NonFinite counts the rows of x [B,H,N,D] that hold NaN or infinities. It also returns the
// batch row, head and position of the first, in order of batch row, position and head.
func NonFinite(x tensor.Heads) (rows int64, first [3]int) {
	if !hasNonFiniteSum(x) {
		return 0, first
	}
	for b := range x.B {
		for i := range x.N {
			for h := range x.H {
				if finiteRow(x.Head(b, h).Row(i)) {
					continue
				}
				if rows == 0 {
					first = [3]int{b, h, i}
				}
				rows++
			}
		}
	}
	return rows, first
}

func finiteRow(x []tensor.Float) bool {
	for _, y := range x {
		if y-y != 0 {
			return false
		}
	}
	return true
}

// hasNonFiniteSum reports whether the sum over a head of x is not finite. This holds if an
// element is not finite.
func hasNonFiniteSum(x tensor.Heads) bool {
	size := x.H * x.N * x.D
	if work := float64(x.B) * float64(size); work >= par.MinWork {
		var odd atomic.Bool
		par.RunEach(x.B*x.H, work, func(i int) {
			if scratch.HasNonFiniteSum(x.Head(i/x.H, i%x.H)) {
				odd.Store(true)
			}
		})
		return odd.Load()
	}
	if x.SB == size && x.SH == x.N*x.D && x.SN == x.D && len(x.Data) >= x.B*size {
		return scratch.HasNonFiniteSum(tensor.Mat{Data: x.Data, Rows: 1, Cols: x.B * size, Stride: x.B * size})
	}
	for i := range x.B * x.H {
		if scratch.HasNonFiniteSum(x.Head(i/x.H, i%x.H)) {
			return true
		}
	}
	return false
}

// ReportNonFinite counts the rows of out that are not finite in keep, or returns them as a
// *NonFiniteError if keep is nil. It does not look at out unless suspected is set.
func ReportNonFinite(out tensor.Heads, keep *Saved, suspected bool) error {
	if keep != nil {
		keep.NonFinite, keep.NonFiniteAt = 0, [3]int{}
	}
	if !suspected {
		return nil
	}
	rows, first := NonFinite(out)
	switch {
	case rows == 0:
		return nil
	case keep == nil:
		return &NonFiniteError{rows, int64(out.B) * int64(out.H) * int64(out.N), first}
	}
	keep.NonFinite, keep.NonFiniteAt = rows, first
	return nil
}

package mechanism

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/scratch"
	"github.com/farfield-ml/farfield/tensor"
)

const (
	maxSampleRows   = 1024    // sampled queries of a head, and as many sampled keys
	maxJudgedTokens = 512     // tokens of a sequence that MeasureTruncation compares
	maxChoices      = 1 << 21 // monomials to choose from
)

// CalibrateTruncation sets the rotation and the monomials of a fastmax-truncated
// mechanism to fit the queries and keys of a call. Heads with constants of their own
// are calibrated separately.
//
// The axes are the eigenvectors of the sum of two second-moment matrices, one of
// queries and one of keys, each divided by its trace. Rows are taken after
// normalisation, rotation of positions and scale. Both sides are turned by the same
// rotation, so that scores do not change. The kept monomials have the largest terms
// |x^a·y^a|/a!, averaged over all pairs of a query and a key; the constant is always
// kept. At most 1024 rows of each side are sampled, evenly spaced.
//
// It overwrites the constants of m. It returns an error if m is not fastmax-truncated,
// if the call does not fit m, or if there are more than 2²¹ monomials to choose from.
func CalibrateTruncation(m attention.Mechanism, c *attention.Call) error {
	t, err := readTruncation(m)
	if err != nil {
		return err
	}
	q, k, err := factorised.Prepared(m, c)
	if err != nil {
		return err
	}
	if n := monomialCount(t.d, t.degree); n > maxChoices {
		return fmt.Errorf("order: %d has %d monomials of %d components, calibration chooses from %d at most", t.degree, n, t.d, maxChoices)
	}
	if k.H == 0 {
		return nil
	}
	group := q.H / k.H
	for h := 0; h < t.heads; h += group {
		q0, q1, k0, k1 := h, h+group, h/group, h/group+1
		if t.heads == 1 {
			q0, q1, k0, k1 = 0, q.H, 0, k.H
		}
		x, y := sampleRows(q, q0, q1), sampleRows(k, k0, k1)
		r := principalAxes(x, y, t.d)
		list := largestMonomials(projectOnAxes(r, x, t.d), projectOnAxes(r, y, t.d), t.d, t.degree, t.keep)
		for to := h; to < min(h+group, t.heads); to++ {
			for i, v := range r {
				t.rotation[to*t.d*t.d+i] = float(v)
			}
			setMonomials(t.list[to*t.keep*t.degree:][:t.keep*t.degree], t.degree, list)
		}
	}
	return nil
}

// truncationConstants are the constants of a fastmax-truncated mechanism.
type truncationConstants struct {
	heads, d, keep, degree int
	rotation, list         []float
}

// readTruncation returns the constants of m, or an error if m is not fastmax-truncated.
func readTruncation(m attention.Mechanism) (t truncationConstants, err error) {
	if name := m.Traits().Name; name != truncated.Name {
		return t, fmt.Errorf("%s: has nothing to calibrate, only %s has", name, truncated.Name)
	}
	rotation, err := m.Constants().Get("rotation")
	if err != nil {
		return t, err
	}
	list, err := m.Constants().Get("monomials")
	if err != nil {
		return t, err
	}
	return truncationConstants{
		heads: list.Shape[0], keep: list.Shape[1], degree: list.Shape[2], d: rotation.Shape[1],
		rotation: rotation.Data, list: list.Data,
	}, nil
}

// sampleRows returns at most maxSampleRows rows of the heads h0 ≤ h < h1, evenly
// spaced. Rows of zeros, such as masked keys, are left out.
func sampleRows(x tensor.Heads, h0, h1 int) (rows []float64) {
	all := x.B * (h1 - h0) * x.N
	for i := range min(all, maxSampleRows) {
		at := i * all / min(all, maxSampleRows)
		row := x.Head(at/x.N/(h1-h0), h0+at/x.N%(h1-h0)).Row(at % x.N)
		if scratch.Norm2(row) > 0 {
			for _, v := range row {
				rows = append(rows, float64(v))
			}
		}
	}
	return rows
}

// principalAxes returns the axes [d, d] of rows x and y of width d, an axis in each
// row.
func principalAxes(x, y []float64, d int) []float64 {
	sum := make([]float64, d*d)
	for _, rows := range [][]float64{x, y} {
		moment, trace := make([]float64, d*d), 0.0
		for ; len(rows) > 0; rows = rows[d:] {
			for i, a := range rows[:d] {
				trace += a * a
				for j, b := range rows[:d] {
					moment[i*d+j] += a * b
				}
			}
		}
		for i := range moment {
			if trace > 0 {
				sum[i] += moment[i] / trace
			}
		}
	}
	return symmetricEigenvectors(sum, d)
}

// projectOnAxes returns the components [d, rows] of rows of width d along the axes r
// [d, d].
func projectOnAxes(r, rows []float64, d int) []float64 {
	n := len(rows) / d
	y := make([]float64, d*n)
	for c := range d {
		for i := range n {
			for j, v := range rows[i*d:][:d] {
				y[c*n+i] += r[c*d+j] * v
			}
		}
	}
	return y
}

// largestMonomials returns the keep monomials up to degree p with the largest mean
// terms over components x [d, queries] and y [d, keys]. It overwrites x and y.
func largestMonomials(x, y []float64, d, p, keep int) (list [][]int) {
	type choice struct {
		size float64
		at   []int
	}
	var all []choice
	nx, ny := len(x)/d, len(y)/d
	for i := range x {
		x[i] = math.Abs(x[i])
	}
	for i := range y {
		y[i] = math.Abs(y[i])
	}
	mean := func(v []float64) (sum float64) {
		for _, a := range v {
			sum += a
		}
		return sum / float64(max(len(v), 1))
	}
	var products func(at []int, px, py []float64)
	products = func(at []int, px, py []float64) {
		first := 1
		if len(at) > 0 {
			first = at[len(at)-1]
			all = append(all, choice{mean(px) * mean(py) / factorialProduct(at), slices.Clone(at)})
		}
		if len(at) == p {
			return
		}
		qx, qy := make([]float64, nx), make([]float64, ny)
		for c := first; c <= d; c++ {
			for i := range qx {
				qx[i] = px[i] * x[(c-1)*nx+i]
			}
			for i := range qy {
				qy[i] = py[i] * y[(c-1)*ny+i]
			}
			products(append(at, c), qx, qy)
		}
	}
	products(nil, slices.Repeat([]float64{1}, nx), slices.Repeat([]float64{1}, ny))
	// Monomials with equal terms are sorted by degree.
	slices.SortStableFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(len(a.at), len(b.at)))
	})
	list = append(list, nil)
	for _, c := range all[:keep-1] {
		list = append(list, c.at)
	}
	return list
}

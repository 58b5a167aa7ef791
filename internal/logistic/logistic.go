// Package logistic fits multinomial logistic regressions with an L2 penalty, in float64, to a
// matrix of numbers and its classes.
package logistic

import (
	"errors"
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
)

// Matrix is a sparse matrix, stored row by row. Add appends rows; columns ascend within a row.
type Matrix struct {
	Cols   int
	starts []int // start of each row after the first, and the end of the last
	cols   []int32
	values []float32
}

// Rows returns the number of rows.
func (x *Matrix) Rows() int { return len(x.starts) }

// Entries returns the number of stored elements.
func (x *Matrix) Entries() int { return len(x.cols) }

// Add appends a row. cols holds the columns of values; nil: 0, 1, 2 and so on.
func (x *Matrix) Add(cols []int32, values []float32) {
	if cols == nil {
		for j := range values {
			x.cols = append(x.cols, int32(j))
		}
	}
	x.cols, x.values = append(x.cols, cols...), append(x.values, values...)
	x.starts = append(x.starts, len(x.cols))
}

// Row returns the columns and values of row i.
func (x *Matrix) Row(i int) (cols []int32, values []float32) {
	from := 0
	if i > 0 {
		from = x.starts[i-1]
	}
	return x.cols[from:x.starts[i]], x.values[from:x.starts[i]]
}

// Select returns the matrix that consists of the given rows.
func (x *Matrix) Select(rows []int) *Matrix {
	y := &Matrix{Cols: x.Cols}
	for _, i := range rows {
		y.Add(x.Row(i))
	}
	return y
}

// Standardise subtracts its mean from each column, and divides all elements by one number, so that
// rows have a mean square of 1. The matrix must have all elements. Standardise returns the means
// and the number.
func (x *Matrix) Standardise() (means []float64, scale float64) {
	means = make([]float64, x.Cols)
	n := float64(max(x.Rows(), 1))
	for i, v := range x.values {
		means[i%x.Cols] += float64(v) / n
	}
	for i, v := range x.values {
		d := float64(v) - means[i%x.Cols]
		scale += d * d / n
	}
	if scale = math.Sqrt(scale); scale == 0 {
		scale = 1
	}
	for i, v := range x.values {
		x.values[i] = float32((float64(v) - means[i%x.Cols]) / scale)
	}
	return means, scale
}

// HoldOut returns one of every n rows of each class, in ascending order.
func HoldOut(y []int32, n int) (held []int) {
	seen := map[int32]int{}
	for i, c := range y {
		if seen[c]++; seen[c]%n == 0 {
			held = append(held, i)
		}
	}
	return held
}

// transpose returns the transpose of x.
func (x *Matrix) transpose() *Matrix {
	t := &Matrix{Cols: x.Rows(), starts: make([]int, x.Cols), cols: make([]int32, len(x.cols)), values: make([]float32, len(x.values))}
	for _, j := range x.cols {
		if int(j)+1 < x.Cols {
			t.starts[j+1]++
		}
	}
	for j := 1; j < x.Cols; j++ {
		t.starts[j] += t.starts[j-1]
	}
	for i := range x.Rows() {
		cols, values := x.Row(i)
		for k, j := range cols {
			at := t.starts[j]
			t.cols[at], t.values[at] = int32(i), values[k]
			t.starts[j]++
		}
	}
	return t
}

// product sets out [Rows,k] to x·w, where w is [Cols,k]. Each element is one sum in the order of
// the columns, so that its bits do not depend on the number of threads.
func (x *Matrix) product(out, w []float64, k int) {
	par.Run(x.Rows(), 64, 2*float64(len(x.cols)*k), product{x, out, w, k})
}

type product struct {
	x      *Matrix
	out, w []float64
	k      int
}

// RunRange computes rows of the product.
func (p *product) RunRange(lo, hi int) {
	axpy, k := kernel.Active[float64]().Axpy, p.k
	for i := lo; i < hi; i++ {
		row := p.out[i*k:][:k]
		clear(row)
		cols, values := p.x.Row(i)
		for n, j := range cols {
			axpy(row, float64(values[n]), p.w[int(j)*k:][:k])
		}
	}
}

// Model is a linear classifier.
type Model struct {
	Classes int
	Weights []float64 // [columns,Classes]
	Bias    []float64 // [Classes]
}

// Logits sets dst [rows,Classes] to the logits of the rows of x.
func (m *Model) Logits(dst []float64, x *Matrix) {
	x.product(dst, m.Weights, m.Classes)
	for i := range x.Rows() {
		for c, b := range m.Bias {
			dst[i*m.Classes+c] += b
		}
	}
}

// Predict returns the most probable class of each row of x, the first among equals.
func (m *Model) Predict(x *Matrix) []int {
	logits, list := make([]float64, x.Rows()*m.Classes), make([]int, x.Rows())
	m.Logits(logits, x)
	for i := range list {
		row := logits[i*m.Classes:][:m.Classes]
		for c, z := range row {
			if z > row[list[i]] {
				list[i] = c
			}
		}
	}
	return list
}

// Loss returns the mean cross-entropy of the classes y of the rows of x, in nats.
func (m *Model) Loss(x *Matrix, y []int32) float64 {
	logits := make([]float64, x.Rows()*m.Classes)
	m.Logits(logits, x)
	return softmax(logits, y, m.Classes) / float64(max(len(y), 1))
}

// softmax replaces logits [rows,k] by probabilities and returns the sum of the cross-entropies of y.
func softmax(logits []float64, y []int32, k int) (loss float64) {
	for i, class := range y {
		row := logits[i*k:][:k]
		top := row[0]
		for _, z := range row {
			top = max(top, z)
		}
		sum, own := 0., row[class]-top
		for c, z := range row {
			row[c] = math.Exp(z - top)
			sum += row[c]
		}
		for c := range row {
			row[c] /= sum
		}
		loss += math.Log(sum) - own
	}
	return loss
}

// Limits of Fit.
const (
	tolerance     = 1e-6 // of the norm of the gradient, beside the norm at 0
	mostSteps     = 100
	mostProducts  = 200 // of a step
	leastDecrease = 1e-4
)

// ErrNotConverged is wrapped by the error of Fit if the gradient does not become small.
var ErrNotConverged = errors.New("the regression does not converge")

// Problem is a set of rows with their classes.
type Problem struct {
	x, t    *Matrix // rows and their transpose
	y       []int32
	classes int
}

// NewProblem returns the problem of predicting the classes y of the rows of x; classes are 0 to
// classes-1. It returns an error if there are no rows, or y does not fit them.
func NewProblem(x *Matrix, y []int32, classes int) (*Problem, error) {
	if x.Rows() == 0 || len(y) != x.Rows() {
		return nil, fmt.Errorf("rows: %d with %d classes, needs 1 or more with a class each", x.Rows(), len(y))
	}
	for i, c := range y {
		if c < 0 || int(c) >= classes {
			return nil, fmt.Errorf("row %d: class %d is not from 0 to %d", i, c, classes-1)
		}
	}
	return &Problem{x, x.transpose(), y, classes}, nil
}

// Fit minimises mean cross-entropy + penalty/2·|Weights|²; the bias has no penalty. It begins at
// the model start, or at 0 if start is nil, and uses Newton steps by conjugate gradients (Steihaug
// 1983) with backtracking. Equal inputs give equal results. Fit returns ErrNotConverged if, after
// 100 steps, the norm of the gradient is not below a millionth of its norm at 0.
func (p *Problem) Fit(penalty float64, start *Model) (*Model, error) {
	f := newFit(p, penalty)
	initial := f.gradient() // at 0
	first := norm(f.grad)
	value := initial
	if start != nil {
		copy(f.w, start.Weights)
		copy(f.w[len(start.Weights):], start.Bias)
		value = f.gradient()
	}
	bound := tolerance * first
	for range mostSteps {
		size := norm(f.grad)
		if size <= bound {
			return f.model(), nil
		}
		slope := f.newton(min(0.1, math.Sqrt(size/max(first, size))) * size)
		before, base := value, append([]float64(nil), f.w...)
		step := 1.
		for {
			for i := range f.w {
				f.w[i] = base[i] + step*f.dir[i]
			}
			if value = f.gradient(); value <= before+leastDecrease*step*slope {
				break
			}
			if step /= 2; step < 1e-10 { // rounding hides the decrease
				copy(f.w, base)
				f.gradient()
				if norm(f.grad) <= 1e3*bound {
					return f.model(), nil
				}
				return nil, fmt.Errorf("%w: the gradient is %.3g, was %.3g", ErrNotConverged, norm(f.grad), first)
			}
		}
	}
	return nil, fmt.Errorf("%w: the gradient is %.3g after %d steps, was %.3g", ErrNotConverged, norm(f.grad), mostSteps, first)
}

// fit holds the memory of Fit. Weights [columns,k] and bias [k] are one vector.
type fit struct {
	*Problem
	penalty       float64
	weights       int // elements of w before the bias
	w, grad, dir  []float64
	probs, around []float64 // [rows,k]
	r, q, product []float64
}

func newFit(p *Problem, penalty float64) *fit {
	k := p.classes
	n, rows := (p.x.Cols+1)*k, p.x.Rows()*k
	f := &fit{Problem: p, penalty: penalty, weights: p.x.Cols * k}
	for _, v := range []*[]float64{&f.w, &f.grad, &f.dir, &f.r, &f.q, &f.product} {
		*v = make([]float64, n)
	}
	f.probs, f.around = make([]float64, rows), make([]float64, rows)
	return f
}

// model returns the classifier with the current weights.
func (f *fit) model() *Model {
	return &Model{Classes: f.classes, Weights: f.w[:f.weights:f.weights], Bias: f.w[f.weights:]}
}

// gradient sets probs and grad at w, and returns the objective.
func (f *fit) gradient() float64 {
	f.model().Logits(f.probs, f.x)
	loss, k := softmax(f.probs, f.y, f.classes), f.classes
	copy(f.around, f.probs)
	for i, c := range f.y {
		f.around[i*k+int(c)]--
	}
	f.gather(f.grad, f.w)
	return loss/float64(len(f.y)) + f.penalty/2*dot(f.w[:f.weights], f.w[:f.weights])
}

// gather sets out to the mean of the rows of around times the rows of x, plus penalty·v.
func (f *fit) gather(out, v []float64) {
	k := f.classes
	f.t.product(out[:f.weights], f.around, k)
	bias := out[f.weights:]
	clear(bias)
	for i := range f.y {
		for c := range bias {
			bias[c] += f.around[i*k+c]
		}
	}
	scale := 1 / float64(len(f.y))
	for i := range out {
		out[i] *= scale
	}
	for i, x := range v[:f.weights] {
		out[i] += f.penalty * x
	}
}

// hessian sets out to the Hessian of the objective times v.
func (f *fit) hessian(out, v []float64) {
	k := f.classes
	(&Model{Classes: k, Weights: v[:f.weights], Bias: v[f.weights:]}).Logits(f.around, f.x)
	for i := range f.y {
		p, z := f.probs[i*k:][:k], f.around[i*k:][:k]
		mean := dot(p, z)
		for c := range z {
			z[c] = p[c] * (z[c] - mean)
		}
	}
	f.gather(out, v)
}

// newton sets dir to an approximate Newton step, whose residual is at most bound, and returns its
// slope, the product with the gradient.
func (f *fit) newton(bound float64) (slope float64) {
	clear(f.dir)
	for i, g := range f.grad {
		f.r[i], f.q[i] = -g, -g
	}
	square := dot(f.r, f.r)
	for range mostProducts {
		f.hessian(f.product, f.q)
		curve := dot(f.q, f.product)
		if curve <= 0 { // of rounding: the objective is convex
			break
		}
		step := square / curve
		for i := range f.dir {
			f.dir[i] += step * f.q[i]
			f.r[i] -= step * f.product[i]
		}
		next := dot(f.r, f.r)
		if math.Sqrt(next) <= bound {
			break
		}
		ratio := next / square
		square = next
		for i := range f.q {
			f.q[i] = f.r[i] + ratio*f.q[i]
		}
	}
	if slope = dot(f.grad, f.dir); slope >= 0 {
		for i, g := range f.grad {
			f.dir[i] = -g
		}
		slope = -dot(f.grad, f.grad)
	}
	return slope
}

// dot returns the sum of products in their order.
func dot(a, b []float64) (sum float64) {
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

func norm(a []float64) float64 { return math.Sqrt(dot(a, a)) }

// penalties are the strengths that FitBest tries, strongest first, as penalty times rows. A strength
// is the inverse of the C of other programs.
var penalties = []float64{10, 3, 1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001}

// Choice is the penalty that FitBest chose, and its results.
type Choice struct {
	Penalty float64 // penalty times the number of training rows
	Loss    float64 // mean cross-entropy of the held-out rows
	Right   int     // number of held-out rows that are classified right
}

// FitBest tries nine penalties: it fits a model to the rows of x that are not held out, and
// measures its loss on those that are. It then fits a model with the best penalty to all rows. held
// lists the held-out rows in ascending order; if there are none, the penalty is 1. FitBest returns
// an error if all rows are held out, and where NewProblem and Fit do.
func FitBest(x *Matrix, y []int32, classes int, held []int) (*Model, Choice, error) {
	best, start, err := chooseBest(x, y, classes, held)
	if err != nil {
		return nil, best, err
	}
	all, err := NewProblem(x, y, classes)
	if err != nil {
		return nil, best, err
	}
	m, err := all.Fit(best.Penalty/float64(x.Rows()), start)
	return m, best, err
}

// chooseBest chooses the penalty of FitBest. It returns the model of the rows that are not held out.
func chooseBest(x *Matrix, y []int32, classes int, held []int) (best Choice, chosen *Model, err error) {
	if len(held) == 0 {
		return Choice{Penalty: 1}, nil, nil
	}
	var rest []int
	for i, next := 0, 0; i < x.Rows(); i++ {
		if next < len(held) && held[next] == i {
			next++
			continue
		}
		rest = append(rest, i)
	}
	part, err := NewProblem(x.Select(rest), pick(y, rest), classes)
	if err != nil {
		return best, nil, err
	}
	judged, want := x.Select(held), pick(y, held)
	best.Loss = math.Inf(1)
	for _, penalty := range penalties {
		m, err := part.Fit(penalty/float64(len(rest)), chosen)
		if err != nil {
			return best, nil, err
		}
		loss := m.Loss(judged, want)
		if loss > best.Loss { // weaker penalties are worse still
			break
		}
		chosen, best = m, Choice{Penalty: penalty, Loss: loss}
		for i, c := range m.Predict(judged) {
			if c == int(want[i]) {
				best.Right++
			}
		}
	}
	return best, chosen, nil
}

// pick returns the elements of list at the given places.
func pick(list []int32, at []int) []int32 {
	some := make([]int32, len(at))
	for i, j := range at {
		some[i] = list[j]
	}
	return some
}

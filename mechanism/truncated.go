package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var truncated = Row{
	Name:   "fastmax-truncated",
	Doc:    "the largest monomials of T_4(q̂·k̂) along axes of the data: the high order that FAST names as its next step",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, section 5; axes and choice of this project",
	Traits: "weights of either sign; direct and linear forms; state of fixed size",
	Linear: true,
	Order:  4,
	Settings: []Setting{
		{"keep", "p=2", "monomials that are kept: a whole number, or p=2 for as many as degree 2 has, (D+1)(D+2)/2"},
		{"norm", "standard", "normalisation of rows: standard (mean 0, deviation 1, as fastmax), bounded, unit or none"},
		{"scale", "1/sqrt(D)", "factor of the scores: a number or 1/sqrt(D)"},
		{"eps", "0", "added to the sum of the weights"},
	},
	Constants: []Param{
		{"rotation", "(H, D, D)", "orthogonal rows that queries and keys of a head are multiplied by; they start as the identity"},
		{"monomials", "(H, keep, p)", "factors of each monomial, in ascending order, then zeros: component i of a row has number i+1; they start as the lowest degrees"},
	},
	fit: func(o *Options, shapes map[string][]int) {
		if list := shapes["monomials"]; len(list) == 3 {
			o.Heads = list[0]
			o.say("keep", strconv.Itoa(list[1]))
			if o.Order == 0 {
				o.Order = list[2]
			}
		}
	},
	f32: spec(truncatedSpec[float32]),
	f64: spec(truncatedSpec[float64]),
}

// highestTruncated is the highest degree of a monomial.
const highestTruncated = 6

func truncatedSpec[T tensor.Float](r *reader) (s attention.Spec[T], err error) {
	d, p := r.o.Width, r.order()
	if d == 0 {
		return s, fmt.Errorf("%s: the width D is not known", r.row.Name)
	}
	if p > highestTruncated {
		return s, fmt.Errorf("%s: order %d: needs to be 1 to %d", r.row.Name, p, highestTruncated)
	}
	all := monomialCount(d, p)
	keep := min(all, monomialCount(d, 2))
	if r.value("keep") != "p=2" {
		if keep, err = r.whole("keep", 1, min(all, 1<<20)); err != nil {
			return s, err
		}
	}
	norm, err := r.choice("norm", "standard", "bounded", "unit", "none")
	if err != nil {
		return s, err
	}
	for _, n := range attention.Norms() {
		if n.String() == norm {
			s.Norm = n
		}
	}
	if s.Scale, err = r.positive("scale", "1/sqrt(D)"); err != nil {
		return s, err
	}
	if s.Eps, err = r.positive("eps", "0"); err != nil {
		return s, err
	}
	f := &truncation[T]{d: d, heads: max(r.o.Heads, 1), keep: keep, degree: p}
	if err := r.room("rotation", f.heads, d, d); err != nil {
		return s, err
	}
	if err := r.room("monomials", f.heads, keep, p); err != nil {
		return s, err
	}
	f.rotation = f.constants.New("rotation", false, f.heads, d, d)
	f.list = f.constants.New("monomials", false, f.heads, keep, p)
	lowest := lowestMonomials(d, p, keep)
	for h := range f.heads {
		for c := range d {
			f.rotation.Data[(h*d+c)*d+c] = 1
		}
		setMonomials(f.list.Data[h*keep*p:][:keep*p], p, lowest)
	}
	s.Name = r.row.Name
	s.Setting = fmt.Sprintf("fastmax-truncated order=%d keep=%d norm=%s scale=%s eps=%s", p, keep, norm, scaleText(s.Scale), strconv.FormatFloat(s.Eps, 'g', -1, 64))
	s.Coef, s.Features = []float64{0, 1}, f
	return s, nil
}

// monomialCount is C(d+p, p), the number of monomials of d components up to
// degree p; math.MaxInt where it is more.
func monomialCount(d, p int) int {
	n := 1
	for l := 1; l <= p; l++ {
		if n > math.MaxInt/(d+l) {
			return math.MaxInt
		}
		n = n * (d + l) / l
	}
	return n
}

// lowestMonomials returns the first keep monomials by degree, and within one
// lexicographically, as their factors.
func lowestMonomials(d, p, keep int) (list [][]int) {
	list = append(list, nil)
	for degree := 1; degree <= p && len(list) < keep; degree++ {
		at := slices.Repeat([]int{1}, degree)
		for len(list) < keep {
			list = append(list, slices.Clone(at))
			l := degree - 1
			for l >= 0 && at[l] == d {
				l--
			}
			if l < 0 {
				break
			}
			next := at[l] + 1
			for ; l < degree; l++ {
				at[l] = next
			}
		}
	}
	return list
}

// setMonomials writes the list to dst in lexicographic order, in which what
// shares factors lies together.
func setMonomials[T tensor.Float](dst []T, p int, list [][]int) {
	clear(dst)
	for r, m := range slices.SortedFunc(slices.Values(list), slices.Compare) {
		for l, i := range m {
			dst[r*p+l] = T(i)
		}
	}
}

// truncation are the features of the monomials kept: with rows x = R·row of queries
// and y = R·row of keys,
//
//	φ(q)·φ(k) = Σ_a x^a·y^a/a!,  a over the monomials kept
//
// which is T_p(q·k) where all are. Those of queries have the coefficients, so that
// states are sums of plain monomials.
type truncation[T tensor.Float] struct {
	d, heads, keep, degree int
	constants              param.Set[T]
	rotation, list         *param.Param[T]
}

func (f *truncation[T]) Dim(int) int { return f.keep }

func (f *truncation[T]) Params() *param.Set[T] { return nil }

func (f *truncation[T]) Constants() *param.Set[T] { return &f.constants }

func (f *truncation[T]) Check(heads, _, d int) error {
	switch {
	case d != f.d:
		return fmt.Errorf("rotation: is of width %d, q has %d", f.d, d)
	case f.heads != 1 && heads != f.heads:
		return fmt.Errorf("rotation: has %d heads, q has %d", f.heads, heads)
	}
	for h := range f.heads {
		list := f.list.Data[h*f.keep*f.degree:][:f.keep*f.degree]
		for r := range f.keep {
			row := list[r*f.degree:][:f.degree]
			if !f.monomial(row) {
				return fmt.Errorf("monomials: row %d of head %d is %v: needs ascending whole numbers from 1 to %d, and then zeros", r, h, row, f.d)
			}
			if r > 0 && slices.Compare(list[(r-1)*f.degree:][:f.degree], row) >= 0 {
				return fmt.Errorf("monomials: row %d of head %d does not follow the one before it", r, h)
			}
		}
	}
	return nil
}

// monomial reports whether row is one.
func (f *truncation[T]) monomial(row []T) bool {
	ended := false
	for l, v := range row {
		i := int(v)
		if T(i) != v || i < 0 || i > f.d || ended && i > 0 || i > 0 && l > 0 && v < row[l-1] {
			return false
		}
		ended = ended || i == 0
	}
	return true
}

// numbers returns the rotation and the monomials of a block's key head.
func (f *truncation[T]) numbers(b *attention.FeatureBlock[T]) (rotation, list []T) {
	h := 0
	if f.heads > 1 {
		h = b.First
	}
	return f.rotation.Data[h*f.d*f.d:][:f.d*f.d], f.list.Data[h*f.keep*f.degree:][:f.keep*f.degree]
}

// walk goes through the monomials of a head. Rows of the rotated tokens, and of
// products of the factors that the next monomial shares with the last, lie ready.
type walk[T tensor.Float] struct {
	b      *attention.FeatureBlock[T]
	list   []T // [keep, degree]
	degree int
	u      []T // [D, Stride] rotated
	tmp    []T // [degree+1, Stride]
	rows   [highestTruncated + 1][]T
	monomialAt[T]
}

// monomialAt are the factors of the monomial that a walk is at.
type monomialAt[T tensor.Float] struct {
	at    [highestTruncated]int
	n     int
	same  [highestTruncated + 1]int // how many of the first l, from the last on, are the same
	below [highestTruncated + 1]T   // 1 over the coefficient of the first l
}

// shared returns how many factors the monomial of row has in common with that
// before.
func (f *monomialAt[T]) shared(row []T) (n int) {
	for n < f.n && int(row[n]) == f.at[n] {
		n++
	}
	return n
}

// push adds a factor, and tells which it is.
func (f *monomialAt[T]) push(v T) (i int) {
	i = int(v)
	f.at[f.n] = i
	f.n++
	f.same[f.n], f.below[f.n] = 1, 1
	if f.n > 1 {
		if f.at[f.n-2] == i {
			f.same[f.n] = f.same[f.n-1] + 1
		}
		f.below[f.n] = f.below[f.n-1] * T(f.same[f.n])
	}
	return i
}

// weight is the coefficient 1/a!, which queries have.
func (f *monomialAt[T]) weight(keys bool) T {
	if keys || f.n < 2 || f.below[f.n] == 1 {
		return 1
	}
	return 1 / f.below[f.n]
}

func (f *truncation[T]) walk(b *attention.FeatureBlock[T]) walk[T] {
	rotation, list := f.numbers(b)
	return walk[T]{b: b, list: list, degree: f.degree, u: project(b, rotation, f.d), tmp: b.Take((f.degree + 1) * b.Stride)}
}

// component is a row of the rotated tokens.
func (w *walk[T]) component(i int) []T { return w.u[(i-1)*w.b.Stride:][:w.b.N] }

// next makes ready the product of the factors of monomial r, in to where it has
// two at least and none of them is repeated or the tokens are keys. leave, if not
// nil, is told of products that are not wanted any more.
func (w *walk[T]) next(r int, to []T, leave func(l int)) {
	row := w.list[r*w.degree:][:w.degree]
	shared := w.shared(row)
	for l := w.n; leave != nil && l > shared; l-- {
		leave(l)
	}
	w.n = shared
	for w.n < len(row) && row[w.n] > 0 {
		x := w.component(w.push(row[w.n]))
		if w.n > 1 {
			y := w.tmp[w.n*w.b.Stride:][:w.b.N]
			if last := w.n == len(row) || row[w.n] == 0; last && to != nil && w.weight(w.b.Keys) == 1 {
				y = to
			}
			w.b.Table.Mul(y, w.rows[w.n-1], x)
			x = y
		}
		w.rows[w.n] = x
	}
}

// factorials returns a! of a monomial's exponents, from its ascending factors.
func factorials(at []int) float64 {
	product, same := 1.0, 0
	for l, i := range at {
		if same++; l > 0 && i != at[l-1] {
			same = 1
		}
		product *= float64(same)
	}
	return product
}

func (f *truncation[T]) Map(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	if b.N == 1 {
		f.mapToken(b)
		return
	}
	w := f.walk(b)
	for r := range f.keep {
		y := b.Y[r*b.Stride:][:b.N]
		w.next(r, y, nil)
		switch weight := w.weight(b.Keys); {
		case w.n == 0:
			for i := range y {
				y[i] = 1
			}
		case weight != 1:
			b.Table.Scale(y, weight, w.rows[w.n])
		case w.n == 1:
			copy(y, w.rows[1])
		}
	}
}

// mapToken is Map of a single token, for which a call for each product would cost
// more than the product. It has the bits of Map.
func (f *truncation[T]) mapToken(b *attention.FeatureBlock[T]) {
	rotation, list := f.numbers(b)
	u := project(b, rotation, f.d)
	var at monomialAt[T]
	var products [highestTruncated + 1]T
	products[0] = 1
	for r := range f.keep {
		row := list[r*f.degree:][:f.degree]
		at.n = at.shared(row)
		for at.n < len(row) && row[at.n] > 0 {
			x := u[(at.push(row[at.n])-1)*b.Stride]
			if at.n > 1 {
				x *= products[at.n-1]
			}
			products[at.n] = x
		}
		y := products[at.n]
		if weight := at.weight(b.Keys); weight != 1 {
			y *= weight
		}
		b.Y[r*b.Stride] = y
	}
}

// Grad hands the gradient of a product of factors, which that of all monomials
// that begin with it is added to, on to its last factor and to what is before it
// when the walk leaves it.
func (f *truncation[T]) Grad(b *attention.FeatureBlock[T]) {
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	w := f.walk(b)
	du, grads := b.Take(f.d*b.Stride), b.Take((f.degree+1)*b.Stride)
	clear(du)
	clear(grads)
	of := func(l int) []T { // gradient of the first l factors' product
		if l == 1 {
			return du[(w.at[0]-1)*b.Stride:][:b.N]
		}
		return grads[l*b.Stride:][:b.N]
	}
	leave := func(l int) {
		if l == 1 {
			return
		}
		g, i := of(l), w.at[l-1]
		b.Table.MulAdd(du[(i-1)*b.Stride:][:b.N], g, w.rows[l-1])
		b.Table.MulAdd(of(l-1), g, w.component(i))
		clear(g)
	}
	for r := range f.keep {
		w.next(r, nil, leave)
		if w.n > 0 {
			b.Table.Axpy(of(w.n), w.weight(b.Keys), b.Y[r*b.Stride:][:b.N])
		}
	}
	for l := w.n; l > 1; l-- {
		leave(l)
	}
	rotation, _ := f.numbers(b)
	projectGrad(b, rotation, f.d, du)
}

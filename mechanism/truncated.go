package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/param"
)

var truncated = Row{
	Name:   "fastmax-truncated",
	Family: Kernelised,
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
			o.setDefault("keep", strconv.Itoa(list[1]))
			if o.Order == 0 {
				o.Order = list[2]
			}
		}
	},
	build: specBuilder(truncatedSpec),
}

// maxTruncatedOrder is the highest degree of a monomial.
const maxTruncatedOrder = 6

func truncatedSpec(r *reader) (s attention.Spec, err error) {
	d, p := r.o.Width, r.order()
	if d == 0 {
		return s, fmt.Errorf("%s: the width D is not known", r.row.Name)
	}
	if p > maxTruncatedOrder {
		return s, fmt.Errorf("%s: order %d: needs to be 1 to %d", r.row.Name, p, maxTruncatedOrder)
	}
	all := monomialCount(d, p)
	keep := min(all, monomialCount(d, 2))
	if r.Text("keep") != "p=2" {
		if keep, err = r.Integer("keep", 1, min(all, 1<<20)); err != nil {
			return s, err
		}
	}
	norm, err := r.Choice("norm", "standard", "bounded", "unit", "none")
	if err != nil {
		return s, err
	}
	for _, n := range attention.Norms() {
		if n.String() == norm {
			s.Norm = n
		}
	}
	if s.Scale, err = r.Positive("scale", "1/sqrt(D)"); err != nil {
		return s, err
	}
	if s.Eps, err = r.Positive("eps", "0"); err != nil {
		return s, err
	}
	f := &truncationFeatures{d: d, heads: max(r.o.Heads, 1), keep: keep, degree: p}
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
	s.Setting = fmt.Sprintf("fastmax-truncated order=%d keep=%d norm=%s scale=%s eps=%s", p, keep, norm, formatScale(s.Scale), strconv.FormatFloat(s.Eps, 'g', -1, 64))
	s.Coef, s.Features = []float64{0, 1}, f
	return s, nil
}

// monomialCount returns C(d+p, p), the number of monomials of d components up to degree
// p, at most math.MaxInt.
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

// lowestMonomials returns the factors of the first keep monomials, sorted by degree,
// then lexicographically.
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

// setMonomials writes list to dst [keep, p] in lexicographic order, so that neighbours
// share factors.
func setMonomials(dst []float, p int, list [][]int) {
	clear(dst)
	for r, m := range slices.SortedFunc(slices.Values(list), slices.Compare) {
		for l, i := range m {
			dst[r*p+l] = float(i)
		}
	}
}

// truncationFeatures are the features of the kept monomials. With rows x = R·q of
// queries and y = R·k of keys,
//
//	φ(q)·φ(k) = Σ_a x^a·y^a/a!,  a over the kept monomials
//
// which is T_p(q·k) if all monomials are kept. Features of queries have the
// coefficients, so that states are sums of plain monomials.
type truncationFeatures struct {
	d, heads, keep, degree int
	constants              param.Set
	rotation, list         *param.Param
}

func (f *truncationFeatures) Dim(int) int { return f.keep }

func (f *truncationFeatures) Params() *param.Set { return nil }

func (f *truncationFeatures) Constants() *param.Set { return &f.constants }

func (f *truncationFeatures) Check(heads, _, d int) error {
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
			if !f.isMonomial(row) {
				return fmt.Errorf("monomials: row %d of head %d is %v: needs ascending whole numbers from 1 to %d, and then zeros", r, h, row, f.d)
			}
			if r > 0 && slices.Compare(list[(r-1)*f.degree:][:f.degree], row) >= 0 {
				return fmt.Errorf("monomials: row %d of head %d does not follow the one before it", r, h)
			}
		}
	}
	return nil
}

// isMonomial reports whether row holds ascending factors, then zeros.
func (f *truncationFeatures) isMonomial(row []float) bool {
	ended := false
	for l, v := range row {
		i := int(v)
		if float(i) != v || i < 0 || i > f.d || ended && i > 0 || i > 0 && l > 0 && v < row[l-1] {
			return false
		}
		ended = ended || i == 0
	}
	return true
}

// headConstants returns the rotation [D, D] and the monomials [keep, degree] of the key
// head of a block.
func (f *truncationFeatures) headConstants(b *attention.FeatureBlock) (rotation, list []float) {
	h := 0
	if f.heads > 1 {
		h = b.First
	}
	return f.rotation.Data[h*f.d*f.d:][:f.d*f.d], f.list.Data[h*f.keep*f.degree:][:f.keep*f.degree]
}

// monomialWalk goes through the monomials of a head. It keeps the rotated tokens and
// the products of factors that the next monomial shares with the last.
type monomialWalk struct {
	b        *attention.FeatureBlock
	list     []float // [keep, degree]
	degree   int
	u        []float // [D, Stride] rotated
	products []float // [degree+1, Stride]
	rows     [maxTruncatedOrder + 1][]float
	monomialFactors
}

// monomialFactors are the factors of the current monomial.
type monomialFactors struct {
	factors   [maxTruncatedOrder]int
	count     int
	repeats   [maxTruncatedOrder + 1]int   // [l] how many equal factors the first l end with
	factorial [maxTruncatedOrder + 1]float // [l] 1 over the coefficient of the first l
}

// countShared returns the number of leading factors that row shares with the current
// monomial.
func (f *monomialFactors) countShared(row []float) (n int) {
	for n < f.count && int(row[n]) == f.factors[n] {
		n++
	}
	return n
}

// pushFactor appends a factor and returns it as an integer.
func (f *monomialFactors) pushFactor(v float) (i int) {
	i = int(v)
	f.factors[f.count] = i
	f.count++
	f.repeats[f.count], f.factorial[f.count] = 1, 1
	if f.count > 1 {
		if f.factors[f.count-2] == i {
			f.repeats[f.count] = f.repeats[f.count-1] + 1
		}
		f.factorial[f.count] = f.factorial[f.count-1] * float(f.repeats[f.count])
	}
	return i
}

// queryCoefficient returns the coefficient 1/a! for queries, 1 for keys.
func (f *monomialFactors) queryCoefficient(keys bool) float {
	if keys || f.count < 2 || f.factorial[f.count] == 1 {
		return 1
	}
	return 1 / f.factorial[f.count]
}

// newWalk rotates the tokens of a block and starts a walk.
func (f *truncationFeatures) newWalk(b *attention.FeatureBlock) monomialWalk {
	rotation, list := f.headConstants(b)
	return monomialWalk{b: b, list: list, degree: f.degree, u: projectTokens(b, rotation, f.d), products: b.Scratch.Take((f.degree + 1) * b.Stride)}
}

// rotatedComponent returns component i of the rotated tokens, counted from 1.
func (w *monomialWalk) rotatedComponent(i int) []float { return w.u[(i-1)*w.b.Stride:][:w.b.N] }

// advanceTo computes the product of the factors of monomial r. It writes the product to
// to, if to is not nil, the monomial has at least two factors and its coefficient is 1.
// It calls leave, if not nil, for products that are no longer needed.
func (w *monomialWalk) advanceTo(r int, to []float, leave func(l int)) {
	table := kernel.Active[float]()
	row := w.list[r*w.degree:][:w.degree]
	shared := w.countShared(row)
	for l := w.count; leave != nil && l > shared; l-- {
		leave(l)
	}
	w.count = shared
	for w.count < len(row) && row[w.count] > 0 {
		x := w.rotatedComponent(w.pushFactor(row[w.count]))
		if w.count > 1 {
			y := w.products[w.count*w.b.Stride:][:w.b.N]
			if last := w.count == len(row) || row[w.count] == 0; last && to != nil && w.queryCoefficient(w.b.Keys) == 1 {
				y = to
			}
			table.Mul(y, w.rows[w.count-1], x)
			x = y
		}
		w.rows[w.count] = x
	}
}

// factorialProduct returns a! of the exponents of a monomial, given by ascending
// factors.
func factorialProduct(at []int) float64 {
	product, same := 1.0, 0
	for l, i := range at {
		if same++; l > 0 && i != at[l-1] {
			same = 1
		}
		product *= float64(same)
	}
	return product
}

func (f *truncationFeatures) Map(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	if b.N == 1 {
		f.mapToken(b)
		return
	}
	w := f.newWalk(b)
	for r := range f.keep {
		y := b.Y[r*b.Stride:][:b.N]
		w.advanceTo(r, y, nil)
		switch weight := w.queryCoefficient(b.Keys); {
		case w.count == 0:
			for i := range y {
				y[i] = 1
			}
		case weight != 1:
			table.Scale(y, weight, w.rows[w.count])
		case w.count == 1:
			copy(y, w.rows[1])
		}
	}
}

// mapToken is Map of a single token, with the same bits. A kernel call for each product
// would cost more than the product.
func (f *truncationFeatures) mapToken(b *attention.FeatureBlock) {
	rotation, list := f.headConstants(b)
	u := projectTokens(b, rotation, f.d)
	var at monomialFactors
	var products [maxTruncatedOrder + 1]float
	products[0] = 1
	for r := range f.keep {
		row := list[r*f.degree:][:f.degree]
		at.count = at.countShared(row)
		for at.count < len(row) && row[at.count] > 0 {
			x := u[(at.pushFactor(row[at.count])-1)*b.Stride]
			if at.count > 1 {
				x *= products[at.count-1]
			}
			products[at.count] = x
		}
		y := products[at.count]
		if weight := at.queryCoefficient(b.Keys); weight != 1 {
			y *= weight
		}
		b.Y[r*b.Stride] = y
	}
}

// Grad accumulates the gradient of a product over all monomials that begin with it.
// When the walk leaves a product, its gradient is passed to its last factor and to the
// product before.
func (f *truncationFeatures) Grad(b *attention.FeatureBlock) {
	table := kernel.Active[float]()
	mark := b.Scratch.Mark()
	defer b.Scratch.Reset(mark)
	w := f.newWalk(b)
	du, grads := b.Scratch.Take(f.d*b.Stride), b.Scratch.Take((f.degree+1)*b.Stride)
	clear(du)
	clear(grads)
	of := func(l int) []float { // gradient of the first l factors' product
		if l == 1 {
			return du[(w.factors[0]-1)*b.Stride:][:b.N]
		}
		return grads[l*b.Stride:][:b.N]
	}
	leave := func(l int) {
		if l == 1 {
			return
		}
		g, i := of(l), w.factors[l-1]
		table.MulAdd(du[(i-1)*b.Stride:][:b.N], g, w.rows[l-1])
		table.MulAdd(of(l-1), g, w.rotatedComponent(i))
		clear(g)
	}
	for r := range f.keep {
		w.advanceTo(r, nil, leave)
		if w.count > 0 {
			table.Axpy(of(w.count), w.queryCoefficient(b.Keys), b.Y[r*b.Stride:][:b.N])
		}
	}
	for l := w.count; l > 1; l-- {
		leave(l)
	}
	rotation, _ := f.headConstants(b)
	projectTokensGrad(b, rotation, f.d, du)
}

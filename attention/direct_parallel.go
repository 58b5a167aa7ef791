package attention

import (
	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/scratch"
)

// The direct form of a task that several workers do together.

// keysTogether calls f for blocks of keys j0 ≤ j < j1, keys of them each.
func (u directForm[T]) keysTogether(keys int, f func(u *headTask[T], j0, j1 int)) {
	u.runParallel(pieces(keys, keyBlock), 0, func(u *headTask[T], t *tokenGroup) {
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			f(u, i*keyBlock, min((i+1)*keyBlock, keys))
		}
	})
}

// attendTogether is attendAs, or for queries that are in place attend.
func (u directForm[T]) attendTogether(all *headTask[T], x *keyRows[T], inPlace bool) {
	u.runParallel(pieces(u.n, queryBlock), 0, func(u *headTask[T], t *tokenGroup) {
		all := *all
		all.ar = u.ar
		var a []T
		var lda int
		if !inPlace {
			lda = scratch.Stride[T](min(u.n, queryBlock))
			a = u.linear().takeScratch(len(u.q) * u.da * lda)
		}
		for i := t.nextPiece(); i < t.n; i = t.nextPiece() {
			i0 := (t.n - 1 - i) * queryBlock // those that see the most keys come first
			n := min(queryBlock, u.n-i0)
			if !inPlace {
				u.direct().prepareGroup(a, lda, i0, n)
			}
			all.direct().attend(x, a, lda, i0, n)
		}
	})
}

func (u directForm[T]) directBackwardTogether() {
	lda, ldo := scratch.Stride[T](u.da), scratch.Stride[T](u.dv)
	keys, values := u.linear().takeScratch(u.m*lda), u.linear().takeScratch(u.m*ldo)
	u.keysTogether(u.m, func(u *headTask[T], j0, j1 int) {
		clear(keys[j0*lda : j1*lda])
		u.rows().prepareK(keys[j0*lda:], lda, j0, j1)
		u.copyValues(values[j0*ldo:], ldo, j0, j1)
	})
	dkeys, dvalues := u.backPairs(u.headTask, keys, values)
	u.keysTogether(u.m, func(u *headTask[T], j0, j1 int) {
		u.rows().gradK(j0, j1, dkeys[j0*lda:], lda)
		u.direct().setValuesGrad(dvalues, j0, j1)
	})
}

// backPairsTogether is backPairs. The gradients of a block of keys are added in the
// order of the rows of blocks, so a worker enters a column after all earlier rows have
// left it.
func (u directForm[T]) backPairsTogether(x backRow[T]) {
	rows, places := pieces(u.n, gradQueries), len(x.all.dage)
	parts, dage := u.scaleParts(rows), arena.TakeZeros[float64](u.ar, len(u.q)*places)
	u.runParallel(len(u.q)*rows, pieces(x.all.m, keyBlock), func(u *headTask[T], t *tokenGroup) {
		r, all := x, *x.all
		all.ar = u.ar
		r.start(u, &all)
		for p := t.nextPiece(); p < t.n; p = t.nextPiece() {
			g, i := p/rows, p%rows
			u.scalePart(parts, i)
			if places > 0 {
				all.dage = dage[g*places:][:places] // heads have the places in common
			}
			r.run(t, g, i)
		}
	})
	u.sumScale(parts)
	for i, d := range dage {
		x.all.dage[i%places] += d
	}
}

// rowsBefore returns how many rows of blocks that have a query which could see
// key j come before row i of head g.
func (u directForm[T]) rowsBefore(j, g, i int) int {
	first := 0
	if u.causal {
		first = max(j-u.offset, 0) / gradQueries
	}
	return g*(pieces(u.n, gradQueries)-first) + i - first
}
